//! Guests as WebAssembly text: one well-behaved transform plugin whose parts can be replaced, one by one, by
//! hostile ones.

use std::fmt::Write;

/// Where a guest keeps the message that it answers to every call.
pub(crate) const ANSWER_AT: usize = 65_536;

/// The parts of a guest that tests replace. Function bodies in WebAssembly text.
#[derive(Clone)]
pub(crate) struct Guest {
    /// Memory type: initial pages, perhaps a maximum.
    pub(crate) memory: String,
    /// Further items of the module: imports come first.
    pub(crate) imports: String,
    pub(crate) items: String,
    /// () -> the manifest's address
    pub(crate) describe: String,
    /// (function, config, schema: pointers and lengths) -> address of result<schema, error>
    pub(crate) open: String,
    /// (clock, input pointer 5, length 6) -> address of result<output, error>
    pub(crate) process: String,
    /// (0, 0, alignment, size) -> address
    pub(crate) realloc: String,
    /// The kind that the manifest claims for the function `f`: 0 scalar, 1 transform, 2 stateful …
    pub(crate) kind: u8,
    /// The encoding that it asks for: 0 Arrow, 1 JSON.
    pub(crate) encoding: u8,
    /// Version in the names of the exports.
    pub(crate) version: String,
    /// Lies at `ANSWER_AT`.
    pub(crate) answer: Vec<u8>,
}

impl Default for Guest {
    /// Identity: the input schema and the input rows come back.
    fn default() -> Self {
        Self {
            memory: "4".into(),
            imports: String::new(),
            items: String::new(),
            describe: "(i32.const 192)".into(),
            open: "(call $ok2 (local.get 4) (local.get 5))".into(),
            process: "(call $output (local.get 5) (local.get 6) (i32.const 0) (i32.const 0))".into(),
            realloc: BUMP.into(),
            kind: 1,
            encoding: 0,
            version: "0.1.0".into(),
            answer: Vec::new(),
        }
    }
}

const BUMP: &str = r#"
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 15)) (i32.const -16)))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (if (i32.gt_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536)))
      (then (if (i32.eq (memory.grow (i32.const 64)) (i32.const -1)) (then (unreachable)))))
    (local.get $at)"#;

impl Guest {
    pub(crate) fn process(body: &str) -> Self {
        Self { process: body.into(), ..Self::default() }
    }

    /// Answers these bytes as rows.
    pub(crate) fn answering(rows: Vec<u8>) -> Self {
        let body = format!(
            "(call $output (i32.const {ANSWER_AT}) (i32.const {}) (i32.const 0) (i32.const 0))",
            rows.len()
        );
        Self { process: body, answer: rows, ..Self::default() }
    }

    /// Hands the input back and rejects rows: (row, reason's pointer, reason's length).
    pub(crate) fn rejecting(rejected: &[(u32, u32, u32)]) -> Self {
        let list = rejected.iter().flat_map(|r| [r.0, r.1, r.2]).flat_map(u32::to_le_bytes).collect();
        let count = rejected.len();
        let body =
            format!("(call $output (local.get 5) (local.get 6) (i32.const {ANSWER_AT}) (i32.const {count}))");
        Self { process: body, answer: list, ..Self::default() }
    }

    pub(crate) fn wat(&self) -> Vec<u8> {
        let Self {
            memory,
            imports,
            items,
            describe,
            open,
            process,
            realloc,
            kind,
            encoding,
            version,
            answer,
        } = self;
        let mut data = String::new();
        for byte in answer {
            write!(data, "\\{byte:02x}").expect("memory");
        }
        let pages = (ANSWER_AT + answer.len()).div_ceil(65_536);
        let memory = if memory == "4" { pages.max(4).to_string() } else { memory.clone() };
        let heap = (ANSWER_AT + answer.len()).next_multiple_of(16);
        format!(
            r#"(module
  {imports}
  (memory (export "memory") {memory})
  (global $heap (mut i32) (i32.const {heap}))
  (data (i32.const 16) "hostile")
  (data (i32.const 32) "0.1.0")
  (data (i32.const 48) "f")
  (data (i32.const 64) "this went wrong")
  (data (i32.const 80) "\ff\fe\fd")
  (data (i32.const 128) "\30\00\00\00\01\00\00\00\{kind:02x}\00\00\00\00\00\00\00\00\00\00\00")
  (data (i32.const 192)
    "\10\00\00\00\07\00\00\00\20\00\00\00\05\00\00\00\{encoding:02x}\00\00\00\80\00\00\00\01\00\00\00")
  (data (i32.const {ANSWER_AT}) "{data}")
  (func $ok2 (param i32 i32) (result i32)
    (i32.store (i32.const 256) (i32.const 0))
    (i32.store (i32.const 260) (local.get 0))
    (i32.store (i32.const 264) (local.get 1))
    (i32.const 256))
  (func $output (param i32 i32 i32 i32) (result i32)
    (drop (call $ok2 (local.get 0) (local.get 1)))
    (i32.store (i32.const 268) (local.get 2))
    (i32.store (i32.const 272) (local.get 3))
    (i32.const 256))
  ;; result::err(error) with the text "this went wrong"; the case of the error is given.
  (func $err (param i32) (result i32)
    (i32.store (i32.const 256) (i32.const 1))
    (i32.store (i32.const 260) (local.get 0))
    (i32.store (i32.const 264) (i32.const 64))
    (i32.store (i32.const 268) (i32.const 15))
    (i32.const 256))
  {items}
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) {realloc})
  (func (export "pelton:plugin/describe@{version}#describe") (result i32) {describe})
  (func (export "pelton:plugin/transform@{version}#open")
    (param i32 i32 i32 i32 i32 i32) (result i32) {open})
  (func (export "pelton:plugin/transform@{version}#process")
    (param i64 i64 i32 i64 i64 i32 i32) (result i32) {process})
)"#
        )
        .into_bytes()
    }
}

/// Imports of the contract's `host`.
pub(crate) const HOST: &str = r#"
  (import "pelton:plugin/host@0.1.0" "log" (func $log (param i32 i32 i32)))
  (import "pelton:plugin/host@0.1.0" "count" (func $count (param i32 i32 i64)))"#;
