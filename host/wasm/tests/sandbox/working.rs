//! Guests that mean well: what they are given, in both forms and encodings.

use crate::guests::{Guest, HOST};
use crate::*;
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use pelton_core::{Encoding, FunctionKind, Rejected};
use pelton_wasm::{Form, LogListener};
use std::sync::Mutex;

const BOUNDARY: &[u8] = include_bytes!("../../examples/boundary.wat");

fn two_columns(rows: i64) -> RecordBatch {
    let a: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    let b: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|n| n * 1000)));
    RecordBatch::try_from_iter([("a", a), ("b", b)]).expect("a batch")
}

#[test]
fn a_plugin_describes_itself() {
    let plugin = load_with(BOUNDARY, limits()).expect("loads");
    let seen = plugin.inspect();
    assert_eq!((seen.form, seen.size_bytes), (Form::CoreModule, BOUNDARY.len() as u64));
    assert_eq!(seen.digest.as_str().len(), 64);
    assert_eq!(seen.contract_version, "0.1.0");
    assert_eq!(seen.manifest.encoding, Encoding::Arrow);
    let functions: Vec<_> = seen.manifest.functions.iter().map(|f| (f.name.as_str(), f.kind)).collect();
    assert_eq!(functions, [("identity", FunctionKind::Transform), ("add", FunctionKind::Scalar)]);
    assert!(seen.imports.is_empty());
    assert!(seen.exports.contains(&"pelton:plugin/scalar@0.1.0".to_owned()));
}

#[test]
fn a_scalar_function_adds() {
    let plugin = load_with(BOUNDARY, limits()).expect("loads");
    let add = plugin.scalar("add", two_columns(0).schema()).expect("binds");
    assert_eq!(add.field().name(), "sum");
    for rows in [0, 1, 7, 1024, 8192] {
        let batch = two_columns(rows + 3).slice(3, rows as usize);
        let sum = in_batch(1, |scope| add.evaluate(scope, &batch)).expect("evaluates").column;
        let expected = Int64Array::from_iter_values((3..rows + 3).map(|n| n * 1001));
        assert_eq!(sum.as_primitive::<Int64Type>(), &expected);
    }
    let metrics = plugin.metrics();
    assert_eq!((metrics.calls, metrics.traps), (5, 0));
    assert_eq!(metrics.instances, 2, "one to describe itself, one for all calls");
}

#[test]
fn rows_are_rejected_with_reasons() {
    let plugin = load(&Guest::rejecting(&[(0, 64, 4), (2, 64, 15)])).expect("loads");
    let function = open(&plugin).expect("opens");
    let output = process(&function, &numbers(3)).expect("runs");
    let rejected = |row, reason: &str| Rejected { row, reason: reason.into() };
    assert_eq!(output.rejected, [rejected(0, "this"), rejected(2, "this went wrong")]);
}

#[test]
fn a_plugin_may_ask_for_json() {
    let plugin = load(&Guest { encoding: 1, ..Guest::default() }).expect("loads");
    let function = open(&plugin).expect("opens");
    assert_eq!(process(&function, &numbers(5)).expect("runs").rows.columns(), numbers(5).columns());
}

#[test]
fn the_clock_is_the_micro_batchs() {
    // It traps unless batch, time (in microseconds) and watermark are these.
    let body = "(if (i64.ne (local.get 0) (i64.const 7)) (then (unreachable)))
        (if (i64.ne (local.get 1) (i64.const 1700000000123000)) (then (unreachable)))
        (if (local.get 2) (then (if (i64.ne (local.get 3) (i64.const -5000)) (then (unreachable)))))
        (call $output (local.get 5) (local.get 6) (i32.const 0) (i32.const 0))";
    let function = open(&load(&Guest::process(body)).expect("loads")).expect("opens");
    process(&function, &numbers(1)).expect("no watermark");
    let batch = BatchInfo { watermark_ms: Some(-5), ..batch_info(7) };
    let scope = CallScope { batch: &batch, operator: "o", partition: 0, call: 0 };
    function.process(&scope, &numbers(1)).expect("with a watermark");
    in_batch(8, |scope| function.process(scope, &numbers(1))).expect_err("another batch");
}

#[test]
fn many_threads_share_a_function_and_each_call_has_an_instance() {
    let plugin = load_with(BOUNDARY, Limits::default()).expect("loads");
    let add = plugin.scalar("add", two_columns(0).schema()).expect("binds");
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let add = &add;
            threads.spawn(move || {
                for rows in 0..200 {
                    let batch = two_columns(rows + thread);
                    let sum = in_batch(1, |scope| add.evaluate(scope, &batch)).expect("evaluates");
                    assert_eq!(sum.column.len() as i64, rows + thread);
                }
            });
        }
    });
    let metrics = plugin.metrics();
    assert_eq!(metrics.calls, 800);
    assert!(metrics.instances <= 5, "{}", metrics.instances);
}

#[test]
fn instances_can_be_discarded_after_every_call() {
    let settings = PluginSettings { discard_after_every_call: true, ..PluginSettings::default() };
    let plugin = host().load("p", BOUNDARY, settings).expect("loads");
    let identity = plugin.transform("identity", two_columns(0).schema()).expect("opens");
    for _ in 0..3 {
        process(&identity, &two_columns(4)).expect("runs");
    }
    assert_eq!(plugin.metrics().instances, 5, "describe, open, and one for each of three calls");
}

#[test]
fn compiled_code_is_found_again_by_another_host() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = HostOptions { cache_dir: Some(directory.path().join("modules")), ..HostOptions::default() };
    for _ in 0..2 {
        let host = PluginHost::new(options.clone()).expect("starts");
        let plugin = host.load("p", BOUNDARY, PluginSettings::default()).expect("loads");
        let identity = plugin.transform("identity", two_columns(0).schema()).expect("opens");
        assert_eq!(process(&identity, &two_columns(4)).expect("runs").rows, two_columns(4));
        assert_eq!(std::fs::read_dir(directory.path().join("modules")).expect("there").count(), 1);
    }
}

#[test]
fn the_config_must_be_an_object() {
    let settings = PluginSettings { config: serde_json::json!([1]), ..PluginSettings::default() };
    let error = host().load("p", BOUNDARY, settings).expect_err("refused");
    assert_eq!(error.message(), "plugin 'p': its 'config' must be an object");
}

#[test]
fn counters_add_up_over_calls_and_log_lines_are_heard() {
    let body = "(call $count (i32.const 64) (i32.const 4) (i64.const 3))
        (call $log (i32.const 1) (i32.const 64) (i32.const 4))
        (call $output (local.get 5) (local.get 6) (i32.const 0) (i32.const 0))";
    let lines = Arc::new(Mutex::new(Vec::new()));
    let heard = lines.clone();
    let listener = LogListener::new(move |level, text| {
        heard.lock().expect("not poisoned").push(format!("{level} {text}"));
    });
    let settings = PluginSettings { log_listener: Some(listener), ..PluginSettings::default() };
    let guest = Guest { imports: HOST.into(), ..Guest::process(body) };
    let plugin = host().load("p", &guest.wat(), settings).expect("loads");
    let function = open(&plugin).expect("opens");
    for _ in 0..4 {
        process(&function, &numbers(1)).expect("runs");
    }
    assert_eq!(plugin.metrics().counters["this"], 12);
    assert_eq!(*lines.lock().expect("not poisoned"), ["DEBUG this"; 4]);
}

/// A guest of WASI preview 1 that traps unless the clock stands at the batch's time, nothing is in the environment,
/// no file can be opened, sleeping takes no time and writing works; it rejects row 0 with 16 random letters.
fn wasi_guest() -> Guest {
    let imports = r#"
      (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "clock_time_get" (func $time (param i32 i64 i32) (result i32)))
      (import "wasi_snapshot_preview1" "environ_sizes_get" (func $env (param i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "path_open"
        (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))"#;
    let body = "(local $at i32)
        (if (call $time (i32.const 0) (i64.const 1) (i32.const 400)) (then (unreachable)))
        (if (i64.ne (i64.load (i32.const 400)) (i64.const 1700000000123000000)) (then (unreachable)))
        (if (call $env (i32.const 400) (i32.const 404)) (then (unreachable)))
        (if (i64.ne (i64.load (i32.const 400)) (i64.const 0)) (then (unreachable)))
        (i32.store (i32.const 400) (i32.const 64)) (i32.store (i32.const 404) (i32.const 15))
        (if (call $write (i32.const 1) (i32.const 400) (i32.const 1) (i32.const 408)) (then (unreachable)))
        (if (i32.ne (i32.load (i32.const 408)) (i32.const 15)) (then (unreachable)))
        (if (i32.eqz (call $open (i32.const 3) (i32.const 0) (i32.const 64) (i32.const 4) (i32.const 0)
            (i64.const -1) (i64.const -1) (i32.const 0) (i32.const 408))) (then (unreachable)))
        ;; A subscription to the monotonic clock an hour from now.
        (memory.fill (i32.const 500) (i32.const 0) (i32.const 48))
        (i32.store (i32.const 516) (i32.const 1))
        (i64.store (i32.const 524) (i64.const 3600000000000))
        (if (call $poll (i32.const 500) (i32.const 600) (i32.const 1) (i32.const 408)) (then (unreachable)))
        (if (call $random (i32.const 400) (i32.const 16)) (then (unreachable)))
        (local.set $at (i32.const 400))
        (loop $l
          (i32.store8 (local.get $at)
            (i32.or (i32.const 0x60) (i32.and (i32.const 0x0f) (i32.load8_u (local.get $at)))))
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (br_if $l (i32.lt_u (local.get $at) (i32.const 416))))
        (i32.store (i32.const 440) (i32.const 0))
        (i32.store (i32.const 444) (i32.const 400))
        (i32.store (i32.const 448) (i32.const 16))
        (call $output (local.get 5) (local.get 6) (i32.const 440) (i32.const 1))";
    Guest { imports: imports.into(), ..Guest::process(body) }
}

#[test]
fn wasi_is_present_but_empty_and_repeats_itself() {
    let random = |batch: u64, call: u64| {
        let plugin = load(&wasi_guest()).expect("loads");
        let function = open(&plugin).expect("opens");
        let batch = batch_info(batch);
        let scope = CallScope { batch: &batch, operator: "o", partition: 0, call };
        let first = function.process(&scope, &numbers(1)).expect("runs").rejected;
        let again = function.process(&scope, &numbers(1)).expect("runs").rejected;
        assert_eq!(first, again, "an instance that served before answers the same");
        first[0].reason.clone()
    };
    let one = random(7, 0);
    assert_eq!(one.len(), 16);
    assert_eq!(one, random(7, 0));
    assert_ne!(one, random(7, 1));
    assert_ne!(one, random(8, 0));
}
