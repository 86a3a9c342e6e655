//! Which plugins' bytes the checkpoint keeps: those that an entry of the offset log names, that run, or to which a
//! rollback or a failure may go. Pure; `micro_batch` removes what it says.

use pelton_checkpoint::SwappedPlugin;
use pelton_core::{BatchId, PluginDigest};
use std::collections::BTreeMap;

/// The plugins that are kept, with the last micro-batch that is known to name each.
#[derive(Debug, Default)]
pub(crate) struct KeptPlugins(BTreeMap<PluginDigest, BatchId>);

impl KeptPlugins {
    /// Those that are there at a start. Which entries name them is not looked up: it may be the last.
    pub(crate) fn new(stored: Vec<PluginDigest>, next: BatchId) -> Self {
        Self(stored.into_iter().map(|digest| (digest, next)).collect())
    }

    /// The entry of a micro-batch names these.
    pub(crate) fn named<'a>(
        &mut self,
        plugins: impl Iterator<Item = &'a PluginDigest>,
        swaps: &'a BTreeMap<String, SwappedPlugin>,
        batch_id: BatchId,
    ) {
        let of_swap = |swapped: &'a SwappedPlugin| {
            swapped.before.iter().chain(swapped.probation.iter().map(|probation| &probation.from))
        };
        for digest in plugins.chain(swaps.values().flat_map(of_swap)) {
            match self.0.get_mut(digest) {
                Some(last) => *last = batch_id,
                None => drop(self.0.insert(digest.clone(), batch_id)),
            }
        }
    }

    /// One that no entry from `oldest` on names, and none that is still to come unless it is offered anew.
    pub(crate) fn superfluous(&self, oldest: BatchId) -> Option<&PluginDigest> {
        self.0.iter().find(|(_, last)| **last < oldest).map(|(digest, _)| digest)
    }

    /// It is gone.
    pub(crate) fn removed(&mut self, digest: &PluginDigest) {
        self.0.remove(digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_when_the_last_entry_that_names_them_is_gone() {
        let digest = |name: &str| PluginDigest(name.to_owned());
        let mut kept = KeptPlugins::new(vec![digest("a"), digest("b")], BatchId(3));
        let swapped = SwappedPlugin { instead_of: digest("x"), before: vec![digest("a")], probation: None };
        let swaps = BTreeMap::from([("p".to_owned(), swapped)]);
        for batch in 4..6 {
            kept.named([digest("c")].iter(), &swaps, BatchId(batch));
        }
        assert_eq!(kept.superfluous(BatchId(3)), None);
        assert_eq!(kept.superfluous(BatchId(4)), Some(&digest("b")), "a rollback may go to the other");
        kept.removed(&digest("b"));
        assert_eq!(kept.superfluous(BatchId(5)), None);
        assert_eq!(kept.superfluous(BatchId(6)), Some(&digest("a")));
    }
}
