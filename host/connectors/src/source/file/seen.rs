//! Which files were read already: Spark's `SeenFilesMap`. Pure; its memory is bounded by the age of files.

use std::collections::HashMap;

/// The files seen, with their times of modification.
#[derive(Debug, Clone)]
pub(super) struct SeenFiles {
    files: HashMap<Box<str>, i64>,
    latest_ms: i64,
    /// What is older was forgotten and counts as seen.
    oldest_ms: i64,
    max_age_ms: Option<i64>,
    name_only: bool,
    /// Files held after the last purge: purging is worth its time when there are twice as many.
    purged_len: usize,
}

impl SeenFiles {
    /// With `max_age_ms` none, nothing is ever forgotten.
    pub(super) fn new(max_age_ms: Option<i64>, name_only: bool) -> Self {
        let oldest_ms = i64::MIN;
        Self { files: HashMap::new(), latest_ms: i64::MIN, oldest_ms, max_age_ms, name_only, purged_len: 0 }
    }

    fn key<'p>(&self, path: &'p str) -> &'p str {
        if self.name_only { path.rsplit('/').next().unwrap_or(path) } else { path }
    }

    /// Whether it was read; its age does not count.
    pub(super) fn contains(&self, path: &str) -> bool {
        self.files.contains_key(self.key(path))
    }

    /// Whether it is to be read.
    pub(super) fn is_new(&self, path: &str, modified_ms: i64) -> bool {
        modified_ms >= self.oldest_ms && !self.contains(path)
    }

    /// Remembers it.
    pub(super) fn add(&mut self, path: &str, modified_ms: i64) {
        self.files.insert(self.key(path).into(), modified_ms);
        self.latest_ms = self.latest_ms.max(modified_ms);
    }

    /// Moves the bound for old files up to the newest file's time; forgets what lies behind.
    pub(super) fn purge(&mut self) {
        let Some(max_age_ms) = self.max_age_ms.filter(|_| self.latest_ms > i64::MIN) else { return };
        self.oldest_ms = self.oldest_ms.max(self.latest_ms.saturating_sub(max_age_ms));
        if self.files.len() >= 2 * self.purged_len.max(512) {
            self.forget();
        }
    }

    /// Forgets the files behind the bound now.
    pub(super) fn forget(&mut self) {
        let oldest_ms = self.oldest_ms;
        self.files.retain(|_, modified_ms| *modified_ms >= oldest_ms);
        self.purged_len = self.files.len();
    }

    /// The bound for old files, if there is one yet.
    pub(super) fn oldest_ms(&self) -> Option<i64> {
        (self.oldest_ms > i64::MIN).then_some(self.oldest_ms)
    }

    /// Takes over a bound that was written down.
    pub(super) fn restore_oldest_ms(&mut self, oldest_ms: i64) {
        self.oldest_ms = self.oldest_ms.max(oldest_ms);
    }

    /// All that is remembered, in a fixed order.
    pub(super) fn sorted(&self) -> Vec<(&str, i64)> {
        let mut all: Vec<(&str, i64)> = self.files.iter().map(|(path, ms)| (path.as_ref(), *ms)).collect();
        all.sort_unstable();
        all
    }

    /// How many are remembered.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_once() {
        let mut seen = SeenFiles::new(Some(100), false);
        assert!(seen.is_new("/a/x", 5));
        seen.add("/a/x", 5);
        assert!(!seen.is_new("/a/x", 5));
        assert!(seen.is_new("/b/x", 5));
        let mut by_name = SeenFiles::new(Some(100), true);
        by_name.add("/a/x", 5);
        assert!(!by_name.is_new("/b/x", 5));
    }

    #[test]
    fn old_files_are_forgotten_and_not_read() {
        let mut seen = SeenFiles::new(Some(100), false);
        seen.add("a", 0);
        seen.add("b", 150);
        seen.purge();
        assert!(!seen.is_new("c", 49));
        assert!(seen.is_new("c", 50));
        seen.forget();
        assert_eq!(seen.sorted(), [("b", 150)]);
        assert!(!seen.is_new("a", 0));
    }

    #[test]
    fn without_an_age_nothing_is_forgotten() {
        let mut seen = SeenFiles::new(None, false);
        seen.add("a", 0);
        seen.add("b", i64::MAX);
        seen.purge();
        assert!(seen.is_new("c", 1));
        assert_eq!(seen.len(), 2);
    }
}
