//! Where Pelton means to differ from Spark, with the reason.

/// A deliberate difference.
pub(super) struct Known {
    /// The case.
    pub(super) id: &'static str,
    /// Why.
    pub(super) reason: &'static str,
    /// Every difference that is meant begins with one of these.
    pub(super) differences: &'static [&'static str],
}

/// All of them.
pub(super) const KNOWN: &[Known] = &[];

/// What is left of the differences of a case without those that are meant. A meant one that does not occur is
/// a difference too: the table must be true.
pub(super) fn unmeant(id: &str, differences: Vec<String>) -> Vec<String> {
    let Some(known) = KNOWN.iter().find(|known| known.id == id) else { return differences };
    let meant = |difference: &String| known.differences.iter().any(|start| difference.starts_with(start));
    let gone =
        known.differences.iter().filter(|start| !differences.iter().any(|found| found.starts_with(**start)));
    let gone: Vec<String> =
        gone.map(|start| format!("the difference '{start}' is gone ({})", known.reason)).collect();
    differences.into_iter().filter(|difference| !meant(difference)).chain(gone).collect()
}
