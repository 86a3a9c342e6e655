//! When a version takes over that has run beside the query. Pure.

use super::ShadowReport;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// As it is written: `identical`, or `within=0.1%`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum PromoteIf {
    /// No row, no dead letter and no entry of state differs.
    Identical,
    /// At most so many of a hundred rows and dead letters differ.
    Within(f64),
}

impl PromoteIf {
    /// Why a version does not take over, if it does not.
    pub(crate) fn refusal(self, report: &ShadowReport) -> Option<String> {
        if report.new.calls == 0 {
            return Some("it was not called".to_owned());
        }
        if report.unlike_batches > 0 {
            let what = "micro-batches the version that runs gave another number of rows than in the query";
            return Some(format!("in {} {what}", report.unlike_batches));
        }
        let found = [report.rows, report.dead_letters];
        let differing: u64 = found.iter().map(|found| found.differing()).sum();
        let all: u64 = found.iter().map(|found| found.running.max(found.new)).sum();
        let state = report.differing_state.unwrap_or(0);
        match self {
            Self::Identical if differing > 0 => {
                Some(format!("{differing} of {all} rows and dead letters differ"))
            }
            Self::Identical if state > 0 => Some(format!("{state} entries of the state differ")),
            Self::Within(percent) if differing as f64 * 100.0 > percent * all as f64 => {
                Some(format!("{differing} of {all} rows and dead letters differ, more than {percent}%"))
            }
            Self::Identical | Self::Within(_) => None,
        }
    }
}

impl fmt::Display for PromoteIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identical => write!(f, "identical"),
            Self::Within(percent) => write!(f, "within={percent}%"),
        }
    }
}

impl FromStr for PromoteIf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no condition; write identical, or for example within=0.1%");
        if text == "identical" {
            return Ok(Self::Identical);
        }
        let percent = text.strip_prefix("within=").ok_or_else(wrong)?;
        let percent: f64 =
            percent.strip_suffix('%').unwrap_or(percent).trim().parse().map_err(|_| wrong())?;
        match (0.0..=100.0).contains(&percent) {
            true => Ok(Self::Within(percent)),
            false => Err(wrong()),
        }
    }
}

impl TryFrom<String> for PromoteIf {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PromoteIf> for String {
    fn from(condition: PromoteIf) -> Self {
        condition.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::DifferenceCounts;

    #[test]
    fn conditions_are_read_as_they_are_written() {
        for text in ["identical", "within=0.1%", "within=0%", "within=100%"] {
            assert_eq!(text.parse::<PromoteIf>().map(|condition| condition.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("within=2".parse(), Ok(PromoteIf::Within(2.0)));
        for text in ["", "same", "within", "within=", "within=101%", "within=-1%", "within=NaN%"] {
            let wrong = format!("'{text}' is no condition; write identical, or for example within=0.1%");
            assert_eq!(text.parse::<PromoteIf>(), Err(wrong));
        }
    }

    #[test]
    fn a_version_takes_over_if_no_more_differs_than_is_allowed() {
        let report = |calls, differing, state| {
            let mut report = ShadowReport::new("p", ("a", "b"), 5, None, Vec::new());
            report.new.calls = calls;
            report.rows =
                DifferenceCounts { running: 990, new: 1000, equal: 990, only_new: 10, ..report.rows };
            report.dead_letters.only_running = differing;
            report.dead_letters.running = differing;
            report.rows.only_new = 0;
            report.differing_state = Some(state);
            report
        };
        let refusal =
            |condition: &str, report: &ShadowReport| condition.parse::<PromoteIf>().unwrap().refusal(report);
        assert_eq!(refusal("identical", &report(1, 0, 0)), None);
        assert_eq!(refusal("identical", &report(0, 0, 0)).as_deref(), Some("it was not called"));
        assert_eq!(
            refusal("identical", &report(1, 1, 0)).as_deref(),
            Some("1 of 1001 rows and dead letters differ")
        );
        assert_eq!(refusal("identical", &report(1, 0, 3)).as_deref(), Some("3 entries of the state differ"));
        assert_eq!(refusal("within=1%", &report(1, 10, 3)), None, "10 of 1010");
        assert_eq!(
            refusal("within=1%", &report(1, 11, 0)).as_deref(),
            Some("11 of 1011 rows and dead letters differ, more than 1%")
        );
        assert!(
            refusal("within=0%", &report(1, 1, 0)).is_some()
                && refusal("within=0%", &report(1, 0, 0)).is_none()
        );
    }
}
