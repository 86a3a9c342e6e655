//! Whether there is a micro-batch to run and what it reads: a pure decision over what the sources said.
//!
//! Called by `micro_batch`. It asks no source itself.

use pelton_checkpoint::SourceOffsets;
use pelton_core::Offset;

/// What a source said about itself when it was asked for its latest offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Available {
    /// Where the last micro-batch ended.
    pub(crate) position: Option<Offset>,
    /// How far the next may read; `None` if there is nothing new.
    pub(crate) latest: Option<Offset>,
}

impl Available {
    /// Nothing is to be read now.
    pub(crate) fn nothing_after(position: &Option<Offset>) -> Self {
        Self { position: position.clone(), latest: None }
    }
}

/// What the next micro-batch reads of each source, in their order; `None`: there is none to run. If no source has
/// something new, one is run all the same where `without_data` says that it would change something; it reads nothing.
/// Spark's `constructNextBatch`.
pub(crate) fn plan_batch(sources: &[Available], without_data: bool) -> Option<Vec<SourceOffsets>> {
    let ranges: Vec<SourceOffsets> = sources
        .iter()
        .map(|source| SourceOffsets {
            start: source.position.clone(),
            end: source.latest.clone().or_else(|| source.position.clone()),
        })
        .collect();
    (without_data || !reads_nothing(&ranges)).then_some(ranges)
}

/// Whether a micro-batch over these ranges is one without data. (One over an empty file has data: its offsets differ.)
pub(crate) fn reads_nothing(ranges: &[SourceOffsets]) -> bool {
    ranges.iter().all(|range| range.start == range.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Option<Offset> {
        Some(Offset(n.into()))
    }

    type Pairs = Vec<(Option<Offset>, Option<Offset>)>;

    fn plan(sources: [(Option<Offset>, Option<Offset>); 2], without_data: bool) -> Option<Pairs> {
        let sources = sources.map(|(position, latest)| Available { position, latest });
        let ranges = plan_batch(&sources, without_data)?;
        Some(ranges.into_iter().map(|range| (range.start, range.end)).collect())
    }

    #[test]
    fn runs_when_any_source_has_something_new() {
        for without_data in [false, true] {
            let news = plan([(at(1), at(2)), (at(5), None)], without_data);
            assert_eq!(news, Some(vec![(at(1), at(2)), (at(5), at(5))]));
            let first = plan([(None, None), (None, at(0))], without_data);
            assert_eq!(first, Some(vec![(None, None), (None, at(0))]));
        }
    }

    #[test]
    fn does_not_run_when_nothing_is_new() {
        assert_eq!(plan([(None, None), (at(5), None)], false), None);
        let still = plan([(at(1), at(1)), (at(5), at(5))], false);
        assert_eq!(still, None, "an offset that stands still is nothing new");
        assert_eq!(plan_batch(&[], false), None);
    }

    #[test]
    fn runs_without_data_where_it_would_change_something() {
        let idle = plan([(None, None), (at(5), None)], true);
        assert_eq!(idle, Some(vec![(None, None), (at(5), at(5))]));
        let ranges = plan_batch(&[Available { position: at(5), latest: at(5) }], true).unwrap();
        assert!(reads_nothing(&ranges));
    }
}
