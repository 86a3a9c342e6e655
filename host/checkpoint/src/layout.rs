//! Where things lie in a checkpoint. Everything is named here and nowhere else.
//!
//! ```text
//! metadata                 the query's id and name
//! lock                     held by the run that owns the checkpoint (local disks)
//! offsets/N                what micro-batch N reads, written before it runs
//! commits/N                micro-batch N is done
//! sources/<name>/…         a source's own log
//! sinks/…                  a sink's own log
//! state/…                  what the stateful operators remember; commits/N says which of it is micro-batch N's
//! layouts/<sha256>         what the state consists of; commits/N says which of these is micro-batch N's
//! plugins/<sha256>.wasm    the bytes of every plugin that an entry of the offset log names, or a rollback may go to
//! dead-letters/N.jsonl     rows of micro-batch N that did not reach the sink
//! replays/<name>/…         dead letters that are fed back to a source
//! ```

use pelton_core::{BatchId, PluginDigest};

/// The query's identity.
pub const METADATA: &str = "metadata";
/// Held by the run that owns the checkpoint.
pub const LOCK: &str = "lock";
/// The offset log.
pub const OFFSETS: &str = "offsets";
/// The commit log.
pub const COMMITS: &str = "commits";
/// One directory a source.
pub const SOURCES: &str = "sources";
/// What sinks keep.
pub const SINKS: &str = "sinks";
/// What the state store keeps.
pub const STATE: &str = "state";
/// What states consist of, by digest.
pub const LAYOUTS: &str = "layouts";
/// Plugins' bytes by digest.
pub const PLUGINS: &str = "plugins";
/// Rows that did not reach the sink.
pub const DEAD_LETTERS: &str = "dead-letters";

/// Dead letters that are fed back to sources.
pub const REPLAYS: &str = "replays";

/// `offsets/17`, `commits/17`.
pub fn log_entry(log: &str, batch_id: BatchId) -> String {
    format!("{log}/{batch_id}")
}

/// The micro-batch whose entry this path is, or `None` for anything else that lies there (leftovers, notes).
pub fn batch_of(log: &str, path: &str) -> Option<BatchId> {
    let name = path.strip_prefix(log)?.strip_prefix('/')?;
    let id: u64 = name.parse().ok()?;
    (id.to_string() == name).then_some(BatchId(id))
}

/// `layouts/<sha256>`.
pub fn state_layouts(digest: &str) -> String {
    format!("{LAYOUTS}/{digest}")
}

/// `plugins/<sha256>.wasm`.
pub fn plugin(digest: &PluginDigest) -> String {
    format!("{PLUGINS}/{digest}.wasm")
}

/// `17.jsonl`, within the tree of the dead letters.
pub fn dead_letters(batch_id: BatchId) -> String {
    format!("{batch_id}.jsonl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_numbers_are_entries() {
        assert_eq!(batch_of(OFFSETS, "offsets/17"), Some(BatchId(17)));
        assert_eq!(log_entry(OFFSETS, BatchId(17)), "offsets/17");
        for other in
            ["offsets/.17.tmp", "offsets/017", "offsets/+1", "offsets/1/2", "commits/17", "offsets17"]
        {
            assert_eq!(batch_of(OFFSETS, other), None, "{other}");
        }
    }
}
