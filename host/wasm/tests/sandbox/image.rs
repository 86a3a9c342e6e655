//! Memory images of guests that answer `stateful` calls: records laid out as the canonical ABI says, so that tests can
//! answer whatever they like. `stateful` uses it.

use crate::guests::ANSWER_AT;
use std::fmt::Write;

/// Bytes that grow, and where they will lie.
#[derive(Default)]
pub(crate) struct Image(Vec<u8>);

impl Image {
    /// Places bytes; where they are.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> u32 {
        self.0.resize(self.0.len().next_multiple_of(16), 0);
        let at = ANSWER_AT + self.0.len();
        self.0.extend_from_slice(bytes);
        at as u32
    }
    /// A list: its pointer and its length.
    pub(crate) fn list(&mut self, count: usize, bytes: &[u8]) -> [u32; 2] {
        [self.put(bytes), count as u32]
    }
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> [u32; 2] {
        self.list(bytes.len(), bytes)
    }
}

pub(crate) fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A `variable` of a signature.
#[derive(Clone)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) kind: u8,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) version: u32,
    pub(crate) ttl_ms: Option<u64>,
    /// Case of the variant, and its number (of `last`).
    pub(crate) load: (u32, u32),
    pub(crate) keyed_by: Vec<&'static str>,
}

/// A `signature`.
#[derive(Clone)]
pub(crate) struct Signature {
    /// Of the manifest: 0 Arrow, 1 JSON.
    pub(crate) encoding: u8,
    pub(crate) form: u8,
    pub(crate) time_mode: u8,
    pub(crate) output: Vec<u8>,
    pub(crate) reads: Option<Vec<&'static str>>,
    pub(crate) variables: Vec<Variable>,
}

impl Signature {
    /// `result::ok(signature)`; where it is.
    pub(crate) fn place(&self, image: &mut Image) -> u32 {
        let output = image.bytes(&self.output);
        let reads = match &self.reads {
            Some(names) => [[1, 0], names_list(image, names)].concat(),
            None => vec![0, 0, 0, 0],
        };
        let reads = [reads[0], reads[2], reads[3]];
        let records: Vec<u8> = self.variables.iter().flat_map(|variable| variable.record(image)).collect();
        let variables = image.list(self.variables.len(), &records);
        let modes = u32::from(self.form) | u32::from(self.time_mode) << 8;
        image.put(&words(&[&[0, modes][..], &output, &reads, &variables].concat()))
    }
}

fn names_list(image: &mut Image, names: &[&str]) -> [u32; 2] {
    let texts: Vec<u32> = names.iter().flat_map(|name| image.bytes(name.as_bytes())).collect();
    image.list(names.len(), &words(&texts))
}

impl Variable {
    fn record(&self, image: &mut Image) -> Vec<u8> {
        let (name, key) = (image.bytes(self.name.as_bytes()), image.bytes(&self.key));
        let value = image.bytes(&self.value);
        let load = match self.load.0 {
            3 => names_list(image, &self.keyed_by),
            _ => [self.load.1, 0],
        };
        let ttl = self.ttl_ms.unwrap_or_default();
        let head = [&name[..], &[u32::from(self.kind)], &key, &value, &[self.version]].concat();
        let ttl = [u32::from(self.ttl_ms.is_some()), 0, ttl as u32, (ttl >> 32) as u32];
        words(&[&head[..], &ttl, &[self.load.0], &load, &[0]].concat())
    }
}

/// `changes` of a variable.
#[derive(Clone, Default)]
pub(crate) struct Changes {
    pub(crate) groups: Vec<u32>,
    pub(crate) actions: Vec<u8>,
    pub(crate) put: Vec<u8>,
    pub(crate) remove: Vec<u8>,
}

/// An `output`.
#[derive(Clone, Default)]
pub(crate) struct Output {
    pub(crate) rows: Vec<u8>,
    pub(crate) rejected: Vec<u32>,
    pub(crate) changes: Vec<Changes>,
    pub(crate) timeouts: Vec<(u32, i64)>,
    pub(crate) timers: Vec<(u32, String, Option<i64>)>,
}

impl Output {
    /// `result::ok(output)`; where it is.
    pub(crate) fn place(&self, image: &mut Image) -> u32 {
        let rows = image.bytes(&self.rows);
        let rejected: Vec<u32> = self.rejected.iter().flat_map(|row| [*row, 0, 0]).collect();
        let rejected = image.list(self.rejected.len(), &words(&rejected));
        let mut changes = Vec::new();
        for change in &self.changes {
            changes.extend(image.list(change.groups.len(), &words(&change.groups)));
            changes.extend(image.bytes(&change.actions));
            changes.extend(image.bytes(&change.put));
            changes.extend(image.bytes(&change.remove));
        }
        let changes = image.list(self.changes.len(), &words(&changes));
        let long = |at: i64| [at as u32, (at >> 32) as u32];
        let timeouts: Vec<u32> =
            self.timeouts.iter().flat_map(|(group, at)| [&[*group, 0][..], &long(*at)].concat()).collect();
        let timeouts = image.list(self.timeouts.len(), &words(&timeouts));
        let mut timers = Vec::new();
        for (group, name, at) in &self.timers {
            let name = image.bytes(name.as_bytes());
            let at_words = long(at.unwrap_or_default());
            timers.extend([&[*group][..], &name, &[0, u32::from(at.is_some()), 0], &at_words].concat());
        }
        let timers = image.list(self.timers.len(), &words(&timers));
        image.put(&words(&[&[0][..], &rows, &rejected, &changes, &timeouts, &timers].concat()))
    }
}

/// A guest with the stateful function `f`: whatever it is asked, it answers this.
pub(crate) fn guest(signature: &Signature, output: &Output, migrated: &[u8]) -> Vec<u8> {
    let mut image = Image::default();
    let open = signature.place(&mut image);
    let process = output.place(&mut image);
    let migrated = image.bytes(migrated);
    let migrate = image.put(&words(&[0, migrated[0], migrated[1], 0]));
    let mut data = String::new();
    for byte in &image.0 {
        write!(data, "\\{byte:02x}").expect("memory");
    }
    let encoding = signature.encoding;
    let heap = (ANSWER_AT + image.0.len()).next_multiple_of(16);
    let pages = heap.div_ceil(65_536) + 1;
    format!(
        r#"(module
  (memory (export "memory") {pages})
  (global $heap (mut i32) (i32.const {heap}))
  (data (i32.const 16) "answers")
  (data (i32.const 32) "0.1.0")
  (data (i32.const 48) "f")
  (data (i32.const 128) "\30\00\00\00\01\00\00\00\02\00\00\00\00\00\00\00\00\00\00\00")
  (data (i32.const 192)
    "\10\00\00\00\07\00\00\00\20\00\00\00\05\00\00\00\{encoding:02x}\00\00\00\80\00\00\00\01\00\00\00")
  (data (i32.const {ANSWER_AT}) "{data}")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 15)) (i32.const -16)))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (if (i32.gt_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536)))
      (then (if (i32.eq (memory.grow (i32.const 64)) (i32.const -1)) (then (unreachable)))))
    (local.get $at))
  (func (export "pelton:plugin/describe@0.1.0#describe") (result i32) (i32.const 192))
  (func (export "pelton:plugin/stateful@0.1.0#open")
    (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const {open}))
  (func (export "pelton:plugin/stateful@0.1.0#process") (param i32) (result i32) (i32.const {process}))
  (func (export "pelton:plugin/stateful@0.1.0#migrate")
    (param i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const {migrate}))
)"#
    )
    .into_bytes()
}
