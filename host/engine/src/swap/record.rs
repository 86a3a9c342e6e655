//! What the offset log says of swaps. Pure.

use super::{PROBATION_BATCHES, SwapKind, VERSIONS_BEFORE_MAX};
use crate::query::Logic;
use pelton_checkpoint::{LayoutId, OffsetEntry, Probation, RolledBack, SwappedPlugin};
use pelton_core::{BatchId, Error, PluginDigest};
use std::collections::{BTreeMap, BTreeSet};

/// A version that takes over.
pub(super) struct Change {
    pub(super) kind: SwapKind,
    /// The version before.
    pub(super) from: PluginDigest,
    /// The version that the pipeline file names.
    pub(super) in_file: PluginDigest,
    /// The first micro-batch with it.
    pub(super) since: BatchId,
    /// What the state consists of with the version before.
    pub(super) layout: Option<LayoutId>,
}

/// What is noted of a plugin from a change on, given what was known of it.
pub(super) fn swapped(known: Option<&SwappedPlugin>, change: Change) -> SwappedPlugin {
    let mut before = known.map(|known| known.before.clone()).unwrap_or_default();
    match change.kind {
        SwapKind::Swap => before.push(change.from.clone()),
        SwapKind::Rollback => drop(before.pop()),
    }
    before.drain(..before.len().saturating_sub(VERSIONS_BEFORE_MAX));
    SwappedPlugin {
        instead_of: change.in_file,
        before,
        probation: Some(Probation {
            from: change.from,
            since: change.since,
            until: BatchId(change.since.0 + PROBATION_BATCHES),
            layout: change.layout,
        }),
    }
}

/// Ends what has been on probation long enough once a micro-batch is committed, and forgets what says nothing any more.
pub(crate) fn committed(swaps: &mut BTreeMap<String, SwappedPlugin>, logic: &Logic, batch_id: BatchId) {
    swaps.retain(|name, swapped| {
        swapped.probation.take_if(|probation| !probation.holds(batch_id.next()));
        let runs_as_written =
            logic.plugins.get(name).is_some_and(|plugin| plugin.digest == swapped.instead_of);
        !(runs_as_written && swapped.before.is_empty() && swapped.probation.is_none())
    });
}

/// The plugins of a micro-batch whose failures would undo their swaps.
pub(crate) fn on_probation(entry: &OffsetEntry, batch_id: BatchId, logic: &Logic) -> BTreeSet<String> {
    let is_on_probation = |(name, swapped): (&String, &SwappedPlugin)| {
        let runs = logic.plugins.get(name).map(|code| &code.digest);
        let holds = swapped.probation.as_ref().is_some_and(|probation| probation.holds(batch_id));
        (holds && runs.is_some() && runs == entry.plugins.get(name)).then(|| name.clone())
    };
    entry.swaps.iter().filter_map(is_on_probation).collect()
}

/// An entry whose micro-batch has failed on probation as it is to run again.
pub(super) struct Undone {
    pub(super) entry: OffsetEntry,
    /// The probation that it did not stand.
    pub(super) probation: Probation,
    pub(super) rolled_back: RolledBack,
}

/// The swap that a failure of a micro-batch undoes: that of the plugin whose fault it is, if the micro-batch ran with it
/// and it is on probation.
pub(super) fn undone(
    entry: &OffsetEntry,
    batch_id: BatchId,
    logic: &Logic,
    failed: &Error,
) -> Option<Undone> {
    let plugin = failed.plugin_name()?;
    let (code, digest) = (logic.plugins.get(plugin)?, entry.plugins.get(plugin)?);
    let swapped = entry.swaps.get(plugin)?;
    let probation = swapped.probation.clone().filter(|probation| probation.holds(batch_id))?;
    if code.digest != *digest {
        return None;
    }
    let rolled_back = RolledBack {
        plugin: plugin.to_owned(),
        from: digest.clone(),
        to: probation.from.clone(),
        why: failed.message().to_owned(),
    };
    let mut entry = entry.clone();
    let mut swapped = SwappedPlugin { probation: None, ..swapped.clone() };
    if swapped.before.last() == Some(&probation.from) {
        swapped.before.pop();
    }
    match swapped.before.is_empty() && swapped.instead_of == probation.from {
        true => drop(entry.swaps.remove(plugin)),
        false => drop(entry.swaps.insert(plugin.to_owned(), swapped)),
    }
    entry.plugins.insert(plugin.to_owned(), probation.from.clone());
    entry.rolled_back.push(rolled_back.clone());
    Some(Undone { entry, probation, rolled_back })
}

/// The versions that go on after a start instead of those that the pipeline file names: they were swapped in, and the file
/// is as it was then. A file that names another version since is a change, and has the last word.
pub fn in_force(
    entry: &OffsetEntry,
    in_file: &BTreeMap<String, PluginDigest>,
) -> BTreeMap<String, PluginDigest> {
    let goes_on = |(name, swapped): (&String, &SwappedPlugin)| {
        let (written, ran) = (in_file.get(name)?, entry.plugins.get(name)?);
        (*written == swapped.instead_of && written != ran).then(|| (name.clone(), ran.clone()))
    };
    entry.swaps.iter().filter_map(goes_on).collect()
}

/// What a start keeps of the swaps: of the plugins that still run in the version that was swapped in. One that the file
/// names by now is as good as written there.
pub(crate) fn carried_on(
    entry: &OffsetEntry,
    logic: &Logic,
    in_file: &BTreeMap<String, PluginDigest>,
) -> BTreeMap<String, SwappedPlugin> {
    let goes_on = |(name, swapped): (&String, &SwappedPlugin)| {
        let runs = &logic.plugins.get(name)?.digest;
        let instead_of = in_file.get(name).unwrap_or(runs).clone();
        let swapped = SwappedPlugin { instead_of, ..swapped.clone() };
        (entry.plugins.get(name) == Some(runs)).then(|| (name.clone(), swapped))
    };
    entry.swaps.iter().filter_map(goes_on).collect()
}

/// What is noted of plugins that a start has in another version than the last micro-batch: they were swapped with the start.
pub(crate) fn started_with(
    entry: &OffsetEntry,
    plugins: &BTreeSet<String>,
    logic: &Logic,
    (since, layout): (BatchId, &LayoutId),
) -> BTreeMap<String, SwappedPlugin> {
    let started = |name: &String| {
        let (from, to) = (entry.plugins.get(name)?, &logic.plugins.get(name)?.digest);
        let change = Change {
            kind: SwapKind::Swap,
            from: from.clone(),
            in_file: to.clone(),
            since,
            layout: Some(layout.clone()),
        };
        (from != to).then(|| (name.clone(), swapped(None, change)))
    };
    plugins.iter().filter_map(started).collect()
}
