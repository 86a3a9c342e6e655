//! Sink functions: what they are given, and what becomes of those that fail.

use crate::*;
use pelton_core::{BatchPart, ErrorKind, OutputMode, SinkFunction};
use pelton_wasm::{HttpAllowance, HttpOrigin};

/// A guest with the sink function `f`. `open` and `write` are function bodies; whatever is stored at 300 is the result.
fn guest(open: &str, write: &str) -> Vec<u8> {
    format!(
        r#"(module
  (import "pelton:plugin/host@0.1.0" "count" (func $count (param i32 i32 i64)))
  (memory (export "memory") 4)
  (global $heap (mut i32) (i32.const 65536))
  (data (i32.const 16) "writers")
  (data (i32.const 32) "0.1.0")
  (data (i32.const 48) "f")
  (data (i32.const 64) "this went wrong")
  (data (i32.const 80) "rows")
  (data (i32.const 88) "parts")
  (data (i32.const 128) "\30\00\00\00\01\00\00\00\04\00\00\00\00\00\00\00\00\00\00\00")
  (data (i32.const 192)
    "\10\00\00\00\07\00\00\00\20\00\00\00\05\00\00\00\00\00\00\00\80\00\00\00\01\00\00\00")
  (func $failed (result i32)
    (i32.store (i32.const 300) (i32.const 1))
    (i32.store (i32.const 304) (i32.const 1))
    (i32.store (i32.const 308) (i32.const 64))
    (i32.store (i32.const 312) (i32.const 15))
    (i32.const 300))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 15)) (i32.const -16)))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (local.get $at))
  (func (export "pelton:plugin/describe@0.1.0#describe") (result i32) (i32.const 192))
  (func (export "pelton:plugin/sink@0.1.0#open")
    (param i32 i32 i32 i32 i32 i32 i32) (result i32) {open})
  (func (export "pelton:plugin/sink@0.1.0#write")
    (param i64 i64 i32 i64 i64 i32 i32 i32 i32) (result i32) {write})
)"#
    )
    .into_bytes()
}

/// Counts the bytes of the rows, and the parts (the last one a thousand times).
const COUNTING: &str = r#"
    (call $count (i32.const 80) (i32.const 4) (i64.extend_i32_u (local.get 8)))
    (call $count (i32.const 88) (i32.const 5)
      (i64.add (i64.extend_i32_u (local.get 5)) (i64.mul (i64.extend_i32_u (local.get 6)) (i64.const 1000))))
    (i32.const 300)"#;

fn open_sink(bytes: &[u8], mode: OutputMode) -> Result<(Arc<WasmPlugin>, Arc<dyn SinkFunction>)> {
    let plugin = load_with(bytes, limits())?;
    let function = plugin.sink("f", numbers(0).schema(), mode)?;
    Ok((plugin, function))
}

fn write(function: &Arc<dyn SinkFunction>, number: u32, is_last: bool, rows: i64) -> Result<()> {
    in_batch(7, |scope| function.write(scope, BatchPart { number, is_last }, &numbers(rows)))
}

#[test]
fn parts_reach_the_guest_one_after_the_other() {
    let (plugin, function) =
        open_sink(&guest("(i32.const 300)", COUNTING), OutputMode::Append).expect("opens");
    write(&function, 3, false, 5).expect("a part");
    write(&function, 4, true, 0).expect("the last one");
    let metrics = plugin.metrics();
    assert_eq!((metrics.counters["parts"], metrics.calls), (1007, 2));
    assert!(metrics.counters["rows"] > 40, "{metrics:?}");
}

#[test]
fn a_sink_that_fails_fails_the_micro_batch() {
    let (_, function) =
        open_sink(&guest("(i32.const 300)", "(call $failed)"), OutputMode::Update).expect("opens");
    let error = write(&function, 0, true, 1).expect_err("fails");
    assert_eq!(error.kind(), ErrorKind::Plugin);
    let expected = "plugin 'p', function 'f', batch 7: failed: this went wrong; the instance was discarded";
    assert_eq!(error.message(), expected);
}

#[test]
fn a_sink_may_refuse_an_output_mode() {
    // It takes appended rows only.
    let open = "(if (result i32) (local.get 6) (then (call $failed)) (else (i32.const 300)))";
    assert!(open_sink(&guest(open, COUNTING), OutputMode::Append).is_ok());
    let error = open_sink(&guest(open, COUNTING), OutputMode::Complete).err().expect("refused");
    assert!(error.message().contains("this went wrong"), "{error}");
}

/// Where the guest of [`sending`] has its URL.
const URL_AT: usize = 520;

/// What it does: a POST; the status is counted, a failure is its own.
const SEND: &str = r#"
    (call $send (i32.const 512) (i32.const 4) (i32.const 520) (i32.load (i32.const 508)) (i32.const 0) (i32.const 0)
      (i32.const 512) (i32.const 4) (i32.const 400))
    (if (result i32) (i32.eqz (i32.load8_u (i32.const 400)))
      (then
        (call $count (i32.const 80) (i32.const 4) (i64.load16_u (i32.const 404)))
        (i32.const 300))
      (else
        (i32.store (i32.const 300) (i32.const 1))
        (i32.store (i32.const 304) (i32.const 1))
        (i32.store (i32.const 308) (i32.load (i32.const 408)))
        (i32.store (i32.const 312) (i32.load (i32.const 412)))
        (i32.const 300)))"#;

/// A guest that sends a request to a URL when it is opened or when it writes.
fn sending(url: &str, open: &str, write: &str) -> Vec<u8> {
    let length: String =
        (url.len() as u32).to_le_bytes().iter().map(|byte| format!("\\{byte:02x}")).collect();
    let import = format!(
        r#"(import "pelton:plugin/http@0.1.0" "send"
    (func $send (param i32 i32 i32 i32 i32 i32 i32 i32 i32)))
  (memory (export "memory") 4)
  (data (i32.const 508) "{length}")
  (data (i32.const 512) "POST")
  (data (i32.const {URL_AT}) "{url}")"#
    );
    let guest = String::from_utf8(guest(open, write)).expect("text");
    guest.replace(r#"(memory (export "memory") 4)"#, &import).into_bytes()
}

fn open_sending(guest: &[u8], allowed: &[String]) -> Result<(Arc<WasmPlugin>, Arc<dyn SinkFunction>)> {
    let origins = allowed.iter().map(|text| HttpOrigin::parse(text).expect("an origin")).collect();
    let http = HttpAllowance { origins, ..HttpAllowance::default() };
    let plugin = host().load("p", guest, PluginSettings { http, ..PluginSettings::default() })?;
    let function = plugin.sink("f", numbers(0).schema(), OutputMode::Append)?;
    Ok((plugin, function))
}

/// Answers with this status, once, and gives the head of what came.
fn server(status: &'static str) -> (String, std::thread::JoinHandle<String>) {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    let thread = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a connection");
        let (mut came, mut buffer) = (Vec::new(), [0; 1024]);
        while !came.ends_with(b"POST") || came.len() < 20 {
            let read = connection.read(&mut buffer).expect("reads");
            came.extend_from_slice(&buffer[..read]);
        }
        write!(connection, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").expect("writes");
        String::from_utf8_lossy(&came).into_owned()
    });
    (origin, thread)
}

#[test]
fn a_sink_sends_requests_to_hosts_that_are_named() {
    let (origin, thread) = server("207 Multi-Status");
    let guest = sending(&format!("{origin}/in"), "(i32.const 300)", SEND);
    let (plugin, function) = open_sending(&guest, &[origin]).expect("opens");
    write(&function, 3, true, 1).expect("is sent");
    assert_eq!(plugin.metrics().counters["rows"], 207);
    let came = thread.join().expect("the server ends");
    assert!(came.starts_with("POST /in HTTP/1.1\r\n"), "{came}");
    assert!(came.contains("-7-3-0\r\n"), "query, micro-batch, part, request: {came}");
}

#[test]
fn nothing_is_sent_that_is_not_allowed_or_not_while_a_sink_writes() {
    let url = "http://127.0.0.1:1/";
    let (_, function) = open_sending(&sending(url, "(i32.const 300)", SEND), &[]).expect("opens");
    let refused = write(&function, 0, true, 1).expect_err("is refused");
    let expected =
        "the pipeline file does not allow http://127.0.0.1:1: add `allow: {http: ['http://127.0.0.1:1']}`";
    assert!(refused.message().contains(expected), "{refused}");
    let opened = open_sending(&sending(url, SEND, SEND), &["http://127.0.0.1:1".to_owned()])
        .err()
        .expect("is refused");
    assert!(opened.message().contains("only a sink function may send requests"), "{opened}");
}
