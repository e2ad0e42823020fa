//! Combines events into changes. Callers pass the current time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::{Change, Timing};

/// Maximum number of paths per batch. A batch with more becomes `Change::All`.
pub(super) const MAX_PATHS: usize = 1000;

#[derive(Debug)]
pub(super) struct Batch {
    timing: Timing,
    span: Option<(Instant, Instant)>,
    paths: BTreeSet<PathBuf>,
    /// The change is delayed until these files are closed.
    writing: BTreeSet<PathBuf>,
    /// The last event was for a file that is now complete.
    whole: bool,
    all: bool,
}

impl Batch {
    pub(super) fn new(timing: Timing) -> Self {
        Self {
            timing,
            span: None,
            paths: BTreeSet::new(),
            writing: BTreeSet::new(),
            whole: false,
            all: false,
        }
    }

    pub(super) fn all(&mut self, now: Instant) {
        self.touch(now);
        self.all = true;
    }

    pub(super) fn path(&mut self, path: &Path, now: Instant) {
        self.touch(now);
        if self.paths.len() < MAX_PATHS {
            self.paths.insert(path.to_owned());
        } else {
            self.all = true;
        }
    }

    pub(super) fn writing(&mut self, path: &Path, now: Instant) {
        self.path(path, now);
        if !self.all {
            self.writing.insert(path.to_owned());
        }
    }

    /// Records that a writer closed the file, or that the file was replaced.
    pub(super) fn whole(&mut self, path: &Path, now: Instant) {
        self.path(path, now);
        self.writing.remove(path);
        self.whole = true;
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let (first, last) = self.span?;
        let latest = first + self.timing.longest;
        // Wait less for a single complete file. Several files may belong together.
        let one = self.whole && self.paths.len() == 1 && !self.all;
        Some(if !self.writing.is_empty() {
            latest
        } else if one {
            latest.min(last + self.timing.one)
        } else {
            latest.min(last + self.timing.quiet)
        })
    }

    pub(super) fn take(&mut self) -> Change {
        let done = std::mem::replace(self, Self::new(self.timing));
        if done.all {
            Change::All
        } else {
            Change::Paths(done.paths.into_iter().collect())
        }
    }

    fn touch(&mut self, now: Instant) {
        let first = self.span.map_or(now, |(first, _)| first);
        self.span = Some((first, now));
        self.whole = false;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn burst_is_one_change_after_bounded_quiet() {
        let start = Instant::now();
        let mut batch = Batch::new(Timing::default());
        assert_eq!(batch.due(), None);
        batch.path(Path::new("/b"), start);
        assert_eq!(batch.due(), Some(start + 2 * MILLISECOND));
        for after in 1..100 {
            batch.path(Path::new("/a"), start + after * MILLISECOND);
        }
        assert_eq!(batch.due(), Some(start + 20 * MILLISECOND));
        assert_eq!(batch.take(), Change::Paths(vec!["/a".into(), "/b".into()]));
        assert_eq!(batch.due(), None);
    }

    #[test]
    fn partial_file_is_awaited() {
        let start = Instant::now();
        let mut batch = Batch::new(Timing::default());
        batch.writing(Path::new("/a"), start);
        assert_eq!(batch.due(), Some(start + 20 * MILLISECOND));
        batch.whole(Path::new("/a"), start + 5 * MILLISECOND);
        assert_eq!(
            batch.due(),
            Some(start + 5 * MILLISECOND + Timing::default().one)
        );
    }

    #[test]
    fn single_whole_file_is_reported_early() {
        let start = Instant::now();
        let mut batch = Batch::new(Timing::default());
        batch.whole(Path::new("/a"), start);
        assert_eq!(batch.due(), Some(start + Timing::default().one));
        batch.path(Path::new("/a"), start);
        assert_eq!(batch.due(), Some(start + 2 * MILLISECOND));
        batch.whole(Path::new("/b"), start);
        assert_eq!(batch.due(), Some(start + 2 * MILLISECOND));
    }

    #[test]
    fn too_many_paths_become_full_scan() {
        let start = Instant::now();
        let mut batch = Batch::new(Timing::default());
        for number in 0..=MAX_PATHS {
            batch.path(Path::new(&format!("/{number}")), start);
        }
        assert_eq!(batch.take(), Change::All);
    }
}
