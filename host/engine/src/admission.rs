//! Whether there is a micro-batch to run and what it reads: a pure decision over what the sources said.
//!
//! Called by `micro_batch`. (A micro-batch without data, for a watermark that has moved, will be decided here too.)

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

/// What the next micro-batch reads of each source, in their order; `None`: nothing is new, there is none to run.
pub(crate) fn plan_batch(sources: &[Available]) -> Option<Vec<SourceOffsets>> {
    let ranges: Vec<SourceOffsets> = sources
        .iter()
        .map(|source| SourceOffsets {
            start: source.position.clone(),
            end: source.latest.clone().or_else(|| source.position.clone()),
        })
        .collect();
    ranges.iter().any(|range| range.start != range.end).then_some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Option<Offset> {
        Some(Offset(n.into()))
    }

    fn plan(sources: [(Option<Offset>, Option<Offset>); 2]) -> Option<Vec<(Option<Offset>, Option<Offset>)>> {
        let sources = sources.map(|(position, latest)| Available { position, latest });
        let ranges = plan_batch(&sources)?;
        Some(ranges.into_iter().map(|range| (range.start, range.end)).collect())
    }

    #[test]
    fn runs_when_any_source_has_something_new() {
        assert_eq!(plan([(at(1), at(2)), (at(5), None)]), Some(vec![(at(1), at(2)), (at(5), at(5))]));
        assert_eq!(plan([(None, None), (None, at(0))]), Some(vec![(None, None), (None, at(0))]));
    }

    #[test]
    fn does_not_run_when_nothing_is_new() {
        assert_eq!(plan([(None, None), (at(5), None)]), None);
        assert_eq!(
            plan([(at(1), at(1)), (at(5), at(5))]),
            None,
            "an offset that stands still is nothing new"
        );
        assert_eq!(plan_batch(&[]), None);
    }
}
