//! Guests that loop, grow, overflow, trap and flood.
#![allow(clippy::disallowed_methods, reason = "limits of time are measured")]

use crate::guests::{ANSWER_AT, Guest, HOST};
use crate::*;
use pelton_core::{Error, ErrorKind};
use std::time::Instant;

/// After whatever happened, another plugin runs.
fn host_goes_on() {
    let function = load(&Guest::default()).and_then(|plugin| open(&plugin)).expect("opens");
    assert_eq!(process(&function, &numbers(3)).expect("runs").rows, numbers(3));
}

fn check(error: &Error, place: &str, reason: &str, since: Instant) {
    assert_eq!(error.kind(), ErrorKind::Plugin, "{error}");
    assert!(error.message().starts_with(place), "{error}");
    assert!(error.message().contains(reason), "{error}\n  should contain: {reason}");
    assert!(since.elapsed().as_secs() < 20, "took {:?}", since.elapsed());
    host_goes_on();
}

/// The plugin loads and opens; its call fails for this reason, again and again.
fn call_fails(guest: Guest, reason: &str) {
    let plugin = load(&guest).expect("loads");
    let function = open(&plugin).expect("opens");
    for _ in 0..2 {
        let since = Instant::now();
        let error = process(&function, &numbers(3)).expect_err("fails");
        check(&error, "plugin 'p', function 'f', batch 7: ", reason, since);
        assert!(error.message().ends_with("; the instance was discarded"), "{error}");
    }
    assert_eq!(plugin.metrics().calls, 2);
    assert_eq!(plugin.metrics().instances, 3, "one to describe itself, one for every call");
}

fn load_fails(guest: Guest, reason: &str) {
    let since = Instant::now();
    let error = load(&guest).expect_err("fails");
    check(&error, "plugin 'p': function 'describe' ", reason, since);
}

fn open_fails(guest: Guest, reason: &str) {
    let plugin = load(&guest).expect("loads");
    let since = Instant::now();
    let error = open(&plugin).err().expect("fails");
    check(&error, "plugin 'p', function 'f', when it was opened: ", reason, since);
}

const LOOP: &str = "(loop $l (br $l)) (unreachable)";
const TOO_LONG: &str = "ran longer than 300 ms (limit time)";

#[test]
fn an_endless_loop_in_a_call() {
    call_fails(Guest::process(LOOP), TOO_LONG);
}

#[test]
fn an_endless_loop_in_describe() {
    load_fails(Guest { describe: LOOP.into(), ..Guest::default() }, TOO_LONG);
}

#[test]
fn an_endless_loop_in_open() {
    open_fails(Guest { open: LOOP.into(), ..Guest::default() }, TOO_LONG);
}

#[test]
fn an_endless_loop_in_a_start_function() {
    let items = "(func $start (loop $l (br $l))) (start $start)";
    load_fails(Guest { items: items.into(), ..Guest::default() }, TOO_LONG);
}

#[test]
fn an_endless_loop_while_the_input_is_handed_over() {
    // Opening allocates three times; the fourth allocation is the first call's.
    let realloc = "(local $at i32)
        (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
        (if (i32.gt_u (global.get $calls) (i32.const 3)) (then (loop $l (br $l))))
        (local.set $at (global.get $heap))
        (global.set $heap (i32.add (global.get $heap) (i32.add (local.get 3) (i32.const 16))))
        (i32.and (i32.add (local.get $at) (i32.const 15)) (i32.const -16))";
    let items = "(global $calls (mut i32) (i32.const 0))";
    call_fails(Guest { realloc: realloc.into(), items: items.into(), ..Guest::default() }, TOO_LONG);
}

#[test]
fn memory_that_grows_without_end() {
    let body = "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) (unreachable)";
    call_fails(Guest::process(body), "of memory (limit memory: 16 MiB)");
    let mut plugin = load(&Guest::default()).expect("loads");
    open(&plugin).expect("opens");
    assert!(plugin.metrics().memory_bytes_max >= 4 << 16);
    plugin = load(&Guest::process(body)).expect("loads");
    process(&open(&plugin).expect("opens"), &numbers(1)).expect_err("fails");
    assert!(plugin.metrics().memory_bytes_max <= 16 << 20, "{:?}", plugin.metrics());
}

#[test]
fn memory_that_is_too_large_from_the_start() {
    load_fails(Guest { memory: "1000".into(), ..Guest::default() }, "it wanted 62.5 MiB of memory");
}

#[test]
fn a_huge_table() {
    let items = "(table 200000000 funcref)";
    load_fails(
        Guest { items: items.into(), ..Guest::default() },
        "table elements (limit table_elements: 100000)",
    );
    let items = "(table $t 1 funcref)";
    let body = "(loop $l (br_if $l (i32.ne (table.grow $t (ref.null func) (i32.const 10000)) (i32.const -1)))) (unreachable)";
    call_fails(Guest { items: items.into(), ..Guest::process(body) }, "limit table_elements");
}

#[test]
fn a_stack_that_overflows() {
    let items = "(func $deep (param i64) (result i64) (i64.add (call $deep (local.get 0)) (i64.const 1)))";
    let body = "(drop (call $deep (i64.const 1))) (i32.const 256)";
    call_fails(
        Guest { items: items.into(), ..Guest::process(body) },
        "overflowed its stack of 512 KiB, in its function 'deep'",
    );
}

#[test]
fn traps() {
    call_fails(Guest::process("(unreachable)"), "trapped: it reached an 'unreachable' instruction");
    let divides = "(i32.div_u (i32.const 1) (i32.const 0))";
    call_fails(Guest::process(divides), "trapped: integer divide by zero");
    let reads = "(i32.load (i32.const -4))";
    call_fails(Guest::process(reads), "trapped: out of bounds memory access");
}

#[test]
fn a_failure_that_the_guest_reports() {
    call_fails(Guest::process("(call $err (i32.const 1))"), "batch 7: failed: this went wrong; the");
    let unsuitable = Guest { open: "(call $err (i32.const 0))".into(), ..Guest::default() };
    let error = open(&load(&unsuitable).expect("loads")).err().expect("fails");
    assert_eq!(error.kind(), ErrorKind::Invalid, "the pipeline file is at fault");
    assert_eq!(error.message(), "plugin 'p', function 'f': this went wrong");
    open_fails(
        Guest { open: "(call $err (i32.const 1))".into(), ..Guest::default() },
        "failed: this went wrong",
    );
}

#[test]
fn pointers_and_lengths_that_lead_nowhere() {
    let output = |pointer: &str, length: &str| {
        Guest::process(&format!(
            "(call $output (i32.const {pointer}) (i32.const {length}) (i32.const 0) (i32.const 0))"
        ))
    };
    call_fails(output("-16", "8"), "out of bounds");
    call_fails(output("16", "-1"), "out of bounds");
    call_fails(output("-1", "-1"), "out of bounds");
    call_fails(Guest::process("(i32.const -1)"), "return pointer not aligned");
    call_fails(Guest::process("(i32.const -4)"), "out of bounds");
    let rejected = |count: &str| {
        Guest::process(&format!(
            "(call $output (local.get 5) (local.get 6) (i32.const 0) (i32.const {count}))"
        ))
    };
    call_fails(rejected("-1"), "out of bounds");
    call_fails(rejected("100000000"), "out of bounds");
    load_fails(Guest { describe: "(i32.const -4)".into(), ..Guest::default() }, "out of bounds");
    open_fails(
        Guest { open: "(call $ok2 (i32.const -2) (i32.const -2))".into(), ..Guest::default() },
        "out of bounds",
    );
}

#[test]
fn allocations_that_are_none() {
    let realloc = |body: &str| Guest { realloc: body.into(), ..Guest::default() };
    open_fails(realloc("(i32.const -8)"), "beyond end of memory");
    open_fails(realloc("(unreachable)"), "trapped");
    // Everything in one place, over the guest's own data: its own affair, but no harm to the host.
    let own_affair = load(&realloc("(i32.const 0)")).expect("loads");
    if let Ok(function) = open(&own_affair) {
        let _ = process(&function, &numbers(3));
    }
    host_goes_on();
}

#[test]
fn answers_that_are_too_large() {
    let large = "(drop (memory.grow (i32.const 100)))
        (call $output (i32.const 0) (i32.const 6000000) (i32.const 0) (i32.const 0))";
    call_fails(Guest::process(large), "answered or passed more than 4 MiB (limit output)");
    // A thousand reasons, all of them the same two megabytes.
    let many: Vec<_> = (0..1000).map(|row| (row, 1 << 20, 2 << 20)).collect();
    let mut guest = Guest::rejecting(&many);
    guest.process = format!("(drop (memory.grow (i32.const 60))) {}", guest.process);
    call_fails(guest, "(limit output)");
}

#[test]
fn a_manifest_that_is_too_large() {
    // The name is four megabytes of zeros.
    let describe = "(drop (memory.grow (i32.const 70)))
        (i32.store (i32.const 196) (i32.const 4194304)) (i32.const 192)";
    load_fails(Guest { describe: describe.into(), ..Guest::default() }, "more than 1 MiB (limit manifest)");
}

#[test]
fn texts_that_are_not_utf_8_and_cases_that_do_not_exist() {
    let guest = Guest::rejecting(&[(1, 80, 3)]);
    call_fails(guest, "invalid utf-8");
    let no_such_result = "(i32.store (i32.const 256) (i32.const 2)) (i32.const 256)";
    call_fails(Guest::process(no_such_result), "invalid expected discriminant");
    call_fails(Guest::process("(call $err (i32.const 5))"), "unexpected discriminant");
    load_fails(Guest { kind: 9, ..Guest::default() }, "unexpected discriminant");
}

#[test]
fn rejected_rows_that_are_wrong() {
    call_fails(Guest::rejecting(&[(3, 64, 4)]), "answered wrong rows: row 3 is rejected, there are 3");
    call_fails(Guest::rejecting(&[(u32::MAX, 64, 4)]), "row 4294967295 is rejected");
    call_fails(
        Guest::rejecting(&[(1, 64, 4), (0, 64, 4)]),
        "rejected rows must ascend, row 0 comes after row 1",
    );
    call_fails(Guest::rejecting(&[(1, 64, 4), (1, 64, 4)]), "row 1 comes after row 1");
}

#[test]
fn ten_gigabytes_of_log_lines() {
    // 10,000 lines of a megabyte, then the input comes back.
    let body = format!(
        "(local $n i32) (drop (memory.grow (i32.const 20)))
         (memory.fill (i32.const {ANSWER_AT}) (i32.const 65) (i32.const 1048576))
         (loop $l
           (call $log (i32.const 2) (i32.const {ANSWER_AT}) (i32.const 1048576))
           (local.set $n (i32.add (local.get $n) (i32.const 1)))
           (br_if $l (i32.lt_u (local.get $n) (i32.const 10000))))
         (call $output (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))"
    );
    let guest = Guest { imports: HOST.into(), ..Guest::process(&body) };
    call_fails(guest, "expected an Arrow IPC message");
    let endless = "(loop $l (call $log (i32.const 4) (i32.const 64) (i32.const 15)) (br $l)) (unreachable)";
    call_fails(Guest { imports: HOST.into(), ..Guest::process(endless) }, TOO_LONG);
}

#[test]
fn counters_without_end() {
    // Two million names; the limit of 64 holds, the rest is counted as dropped.
    let body = "(local $n i32)
        (loop $l
          (i32.store (i32.const 300) (i32.add (i32.const 0x41414141) (local.get $n)))
          (i32.store (i32.const 300) (i32.and (i32.load (i32.const 300)) (i32.const 0x7f7f7f7f)))
          (call $count (i32.const 300) (i32.const 4) (i64.const -1))
          (local.set $n (i32.add (local.get $n) (i32.const 1)))
          (br_if $l (i32.lt_u (local.get $n) (i32.const 20000))))
        (call $output (local.get 5) (local.get 6) (i32.const 0) (i32.const 0))";
    let plugin = load(&Guest { imports: HOST.into(), ..Guest::process(body) }).expect("loads");
    let function = open(&plugin).expect("opens");
    process(&function, &numbers(3)).expect("runs");
    process(&function, &numbers(3)).expect("runs");
    let counters = plugin.metrics().counters;
    assert!(counters.len() <= 65, "{}", counters.len());
    assert!(counters["pelton.counts_dropped"] > 1000);
    host_goes_on();
}

#[test]
fn what_no_plugin_is_granted_is_refused_by_name() {
    let refused = |imports: &str| {
        let error = load(&Guest { imports: imports.into(), ..Guest::default() }).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.hint_text().is_some());
        error.message().to_owned()
    };
    assert_eq!(
        refused(r#"(import "env" "system" (func (param i32) (result i32)))"#),
        "plugin 'p': it imports 'system' of 'env', which no plugin is granted"
    );
}

#[test]
fn a_plugin_of_another_contract_is_refused_naming_the_versions() {
    let error = load(&Guest { version: "0.9.0".into(), ..Guest::default() }).expect_err("refused");
    let wanted =
        "plugin 'p': it was built for version 0.9.0 of the contract pelton:plugin; this host knows 0.1.0";
    assert_eq!(error.message(), wanted);
}

#[test]
fn a_function_whose_interface_is_missing_is_named() {
    let error = load(&Guest { kind: 0, ..Guest::default() }).expect_err("refused");
    assert_eq!(
        error.message(),
        "plugin 'p': its manifest is not usable: it names the scalar function 'f', but does not export \
         pelton:plugin/scalar@0.1.0"
    );
}

#[test]
fn a_kind_that_is_not_run_yet_is_refused_only_when_it_is_opened() {
    let plugin = load(&Guest { kind: 3, ..Guest::default() }).expect("loads");
    let error = open(&plugin).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error.message().contains("is a aggregate function and cannot be used as a transform function"),
        "{error}"
    );
    let error = plugin.transform("g", numbers(0).schema()).err().expect("refused");
    assert_eq!(error.message(), "plugin 'p' has no function 'g'; there are: f");
}
