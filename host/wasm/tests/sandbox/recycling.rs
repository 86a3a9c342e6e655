//! Instances that have served long enough are replaced, and nobody sees it but the memory.
#![allow(clippy::disallowed_methods, reason = "instances grow old by the clock")]

use crate::guests::Guest;
use crate::*;
use pelton_wasm::Recycle;
use std::time::Duration;

/// Takes 1 MiB of memory with each call, writes to all of it, and never gives it back.
const LEAK: &str = "(local $at i32)
    (local.set $at (i32.mul (memory.grow (i32.const 16)) (i32.const 65536)))
    (memory.fill (local.get $at) (i32.const 1) (i32.const 1048576))
    (call $output (local.get 5) (local.get 6) (i32.const 0) (i32.const 0))";

fn loaded(process: &str, recycle: Recycle) -> Arc<WasmPlugin> {
    load_with(&Guest::process(process).wat(), Limits { recycle, ..limits() }).expect("loads")
}

/// What the system says that this process has in memory; nothing where it does not say.
fn resident_bytes() -> Option<u64> {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

#[test]
fn a_guest_that_leaks_runs_on_for_ever_within_its_limit() {
    let plugin = loaded(LEAK, Recycle::default());
    let function = open(&plugin).expect("opens");
    let mut before = None;
    for call in 0..1000 {
        assert_eq!(process(&function, &numbers(call % 7)).expect("runs").rows, numbers(call % 7));
        let metrics = plugin.metrics();
        assert!(metrics.memory_bytes <= 16 << 20, "call {call}: {metrics:?}");
        before = before.or_else(|| resident_bytes().filter(|_| call == 20));
    }
    let metrics = plugin.metrics();
    assert_eq!((metrics.calls, metrics.traps), (1000, 0), "1000 MiB went through a limit of 16 MiB");
    assert!(metrics.recycled > 60 && metrics.instances <= metrics.recycled + 2, "{metrics:?}");
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        assert!(after < before + (256 << 20), "memory is given back: {before} bytes, then {after}");
    }
    drop((function, plugin));
}

#[test]
fn memory_is_counted_while_instances_are_there() {
    let plugin = loaded(LEAK, Recycle { memory_bytes: Some(8 << 20), ..Recycle::default() });
    assert_eq!(plugin.metrics().memory_bytes, 0, "the instance that described itself is gone");
    let function = open(&plugin).expect("opens");
    assert_eq!(plugin.metrics().memory_bytes, 4 << 16);
    process(&function, &numbers(1)).expect("runs");
    assert_eq!(plugin.metrics().memory_bytes, (4 << 16) + (1 << 20));
    drop(function);
    assert_eq!(plugin.metrics().memory_bytes, 0);
}

#[test]
fn an_instance_serves_as_many_calls_and_as_long_as_it_is_told_to() {
    let identity = Guest::default().process;
    let plugin = loaded(&identity, Recycle { calls: 3, ..Recycle::default() });
    let function = open(&plugin).expect("opens");
    for _ in 0..9 {
        process(&function, &numbers(2)).expect("runs");
    }
    assert_eq!((plugin.metrics().instances, plugin.metrics().recycled), (1 + 3, 3));
    let plugin = loaded(&identity, Recycle { age_ms: 20, ..Recycle::default() });
    let function = open(&plugin).expect("opens");
    std::thread::sleep(Duration::from_millis(30));
    process(&function, &numbers(2)).expect("runs");
    assert_eq!((plugin.metrics().instances, plugin.metrics().recycled), (1 + 2, 1));
}

#[test]
fn after_a_failure_calls_are_on_new_instances_and_the_bare_reason_is_known() {
    // The second call on an instance traps.
    let body = "(if (global.get $used) (then (unreachable)))
        (global.set $used (i32.const 1))
        (call $output (local.get 5) (local.get 6) (i32.const 0) (i32.const 0))";
    let items = "(global $used (mut i32) (i32.const 0))";
    let plugin = load(&Guest { items: items.into(), ..Guest::process(body) }).expect("loads");
    let function = open(&plugin).expect("opens");
    process(&function, &numbers(1)).expect("the first goes well");
    let failed = process(&function, &numbers(1)).expect_err("the second does not");
    assert!(
        failed.call_failure().starts_with("trapped: it reached an 'unreachable' instruction"),
        "{failed}"
    );
    process(&function, &numbers(1)).expect("the same on a new instance");
}
