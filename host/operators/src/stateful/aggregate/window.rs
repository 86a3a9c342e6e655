//! The arithmetic of windows: which ones a time is in, and which are over. Microseconds, without any rows.

/// Windows `[n · slide + start, … + size)`. Spark's `window(time, size, slide, start)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Windows {
    size: i64,
    slide: i64,
    start: i64,
    pane: i64,
}

/// Before which times rows are too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lateness {
    /// Times before this are in no window that is still open.
    pub(super) lost_before: i64,
    /// Times before this are in a window that is over.
    pub(super) late_before: i64,
}

impl Windows {
    pub(super) fn new(size: i64, slide: i64, start: i64) -> Self {
        let slide = slide.max(1);
        Self { size: size.max(slide), slide, start, pane: gcd(size.max(slide), slide) }
    }

    /// Whether every time is in one window only.
    pub(super) fn is_tumbling(&self) -> bool {
        self.size == self.slide
    }

    /// How long a window is.
    pub(super) fn size(&self) -> i64 {
        self.size
    }

    /// How long a pane is: all its times are in the same windows.
    pub(super) fn pane_length(&self) -> i64 {
        self.pane
    }

    /// The start of the pane of a time.
    pub(super) fn pane_of(&self, time: i64) -> i64 {
        self.floor(time, self.pane)
    }

    /// The end of the window that starts then.
    pub(super) fn end_of(&self, start: i64) -> i64 {
        start.saturating_add(self.size)
    }

    /// The starts of the windows of a pane, ascending.
    pub(super) fn starts_of(&self, pane: i64) -> impl Iterator<Item = i64> + use<> {
        let last = self.floor(pane, self.slide);
        let before_first =
            self.floor(pane.saturating_add(self.pane - 1).saturating_sub(self.size), self.slide);
        let first = before_first.saturating_add(self.slide);
        let slide = self.slide;
        std::iter::successors(Some(first), move |start| start.checked_add(slide))
            .take_while(move |start| *start <= last)
    }

    /// What is late when windows that end at `watermark` or before are over.
    pub(super) fn lateness(&self, watermark: i64) -> Lateness {
        let last_over = self.floor(watermark.saturating_sub(self.size), self.slide);
        Lateness {
            lost_before: last_over.saturating_add(self.slide),
            late_before: last_over.saturating_add(self.size),
        }
    }

    /// The last point `<= time` of the grid with this step. Downwards also before 1970.
    fn floor(&self, time: i64, step: i64) -> i64 {
        let past = time.saturating_sub(self.start).rem_euclid(step);
        time.saturating_sub(past)
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spark's own words: a window holds a time if `start <= time < end`.
    fn windows_by_definition(windows: Windows, time: i64) -> Vec<i64> {
        let near = (time - windows.size - windows.slide)..=time;
        let on_grid = |start: &i64| (start - windows.start).rem_euclid(windows.slide) == 0;
        near.filter(on_grid).filter(|start| *start <= time && time < start + windows.size).collect()
    }

    #[test]
    fn windows_cover_time_without_gaps_and_lateness_is_that_of_their_ends() {
        for (size, slide, start) in [(10, 10, 0), (10, 5, 0), (10, 4, 3), (7, 3, -2), (10, 1, 0), (9, 6, 5)] {
            let windows = Windows::new(size, slide, start);
            for time in -40..40 {
                let starts: Vec<i64> = windows.starts_of(windows.pane_of(time)).collect();
                assert_eq!(starts, windows_by_definition(windows, time), "{windows:?} at {time}");
                assert!(!starts.is_empty());
                for watermark in -45..60 {
                    let over = |start: &&i64| windows.end_of(**start) <= watermark;
                    let lateness = windows.lateness(watermark);
                    let closed = starts.iter().filter(over).count();
                    assert_eq!(time < lateness.late_before, closed > 0);
                    assert_eq!(time < lateness.lost_before, closed == starts.len());
                }
            }
        }
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        let windows = Windows::new(3_600_000_000, 60_000_000, 1);
        for time in [i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX] {
            let _ = windows.starts_of(windows.pane_of(time)).count();
            let _ = windows.lateness(time);
        }
    }
}
