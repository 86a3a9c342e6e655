//! Where Pelton means to differ from Spark, with the reason.

/// A deliberate difference.
pub(super) struct Known {
    /// The case.
    pub(super) id: &'static str,
    /// Why.
    pub(super) reason: &'static str,
    /// What differs, in the words of the comparison: so Pelton's own answer is held fast too.
    pub(super) differences: &'static [&'static str],
}

/// All of them.
pub(super) const KNOWN: &[Known] = &[];

/// What is left of the differences of a case without those that are meant. A meant one that does not occur is
/// a difference too: the table must be true.
pub(super) fn unmeant(id: &str, differences: Vec<String>) -> Vec<String> {
    let Some(known) = KNOWN.iter().find(|known| known.id == id) else { return differences };
    let meant = |difference: &String| known.differences.contains(&difference.as_str());
    let gone = known.differences.iter().filter(|meant| !differences.iter().any(|found| found == **meant));
    let gone: Vec<String> =
        gone.map(|meant| format!("the difference '{meant}' is gone ({})", known.reason)).collect();
    differences.into_iter().filter(|difference| !meant(difference)).chain(gone).collect()
}
