//! Watches local files.
//!
//! Watches the directory of each file, because files are replaced by rename. Also watches the
//! directory of every link in the path, such as `..data` in a mounted ConfigMap, because links
//! change their targets. Infrequent scans find changes that cause no events.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::watch;

use super::read::read_all;
use super::{LocalFile, LocalMaterial, RequestContext};
use crate::problem::{Severity, SourceProblem};
use crate::way;

/// Wait until events stop, because a key is often written right after its certificate.
const QUIET: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);
/// Minimum time that a problem must persist before it is reported.
const CONFIRM_DELAY: Duration = Duration::from_millis(300);
/// Polling interval while there is a problem, or if events are unavailable.
const POLL: Duration = Duration::from_secs(1);
const RESCAN: Duration = Duration::from_secs(10);

/// Runs until the receivers are dropped.
pub(super) fn start(
    entries: Vec<LocalFile>,
    context: RequestContext,
    newest: watch::Sender<Arc<LocalMaterial>>,
) -> io::Result<()> {
    let (sender, events) = channel();
    let mut follower = Follower {
        entries,
        context,
        newest,
        sender,
        watcher: None,
        watched: BTreeMap::new(),
        doubtful: false,
    };
    let thread = std::thread::Builder::new().name("local".to_owned());
    thread.spawn(move || follower.run(&events)).map(|_| ())
}

/// Device and inode, because a path may later refer to another directory.
type DirectoryId = (u64, u64);

struct Follower {
    entries: Vec<LocalFile>,
    context: RequestContext,
    newest: watch::Sender<Arc<LocalMaterial>>,
    sender: Sender<()>,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeMap<PathBuf, DirectoryId>,
    /// True if the last scan found a new problem, which is not reported yet because an unfinished
    /// renewal looks the same.
    doubtful: bool,
}

impl Follower {
    fn run(&mut self, events: &Receiver<()>) {
        while !self.newest.is_closed() {
            // Watch before scanning, so that no later change is missed.
            let complete = self.watch();
            self.read();
            let troubled = self.doubtful || !self.newest.borrow().problems.is_empty();
            let pause = match (self.doubtful, troubled || !complete) {
                (true, _) => CONFIRM_DELAY,
                (false, true) => POLL,
                (false, false) => RESCAN,
            };
            wait(events, pause.min(self.until_renewal()));
        }
    }

    fn until_renewal(&self) -> Duration {
        let Some(at) = self.newest.borrow().renew_at else {
            return RESCAN;
        };
        let left = at.saturating_sub(Timestamp::now().as_second());
        // While a request awaits its answer, the renewal time is in the past.
        u64::try_from(left).map_or(RESCAN, |left| Duration::from_secs(left).max(POLL))
    }

    fn watch(&mut self) -> bool {
        let files = self.entries.iter().flat_map(LocalFile::files);
        let all: BTreeSet<PathBuf> = files.flat_map(|file| directories(&file)).collect();
        let wanted: BTreeMap<PathBuf, DirectoryId> = all
            .iter()
            .filter_map(|directory| {
                let found = std::fs::metadata(directory).ok()?;
                Some((directory.clone(), (found.dev(), found.ino())))
            })
            .collect();
        let complete = wanted.len() == all.len();
        if wanted == self.watched && self.watcher.is_some() {
            return complete;
        }
        // An existing watcher does not notice that a directory was removed, so create a new one.
        match self.watch_all(&wanted) {
            Ok(watcher) => {
                self.watcher = Some(watcher);
                self.watched = wanted;
                complete
            }
            Err(error) => {
                tracing::debug!(%error, "local files are polled, not watched");
                self.watcher = None;
                false
            }
        }
    }

    fn watch_all(
        &self,
        wanted: &BTreeMap<PathBuf, DirectoryId>,
    ) -> notify::Result<RecommendedWatcher> {
        let sender = self.sender.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // Ignore events that this thread's own reads cause.
            let is_read = |event: &Event| {
                let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
                event.kind.is_access() && event.kind != written
            };
            if !event.is_ok_and(|event| is_read(&event)) {
                // The receiver is gone only if the agent is shutting down.
                let _ = sender.send(());
            }
        })?;
        for directory in wanted.keys() {
            watcher.watch(directory, RecursiveMode::NonRecursive)?;
        }
        Ok(watcher)
    }

    fn read(&mut self) {
        let before = Arc::clone(&self.newest.borrow());
        let mut now = read_all(&self.entries, &before, &self.context);
        let is_new = |problem: &&SourceProblem| !before.problems.contains(problem);
        if now.problems.iter().any(|problem| is_new(&problem)) && !self.doubtful {
            self.doubtful = true;
            now.problems.clone_from(&before.problems);
        } else {
            self.doubtful = false;
        }
        if now == *before {
            return;
        }
        for problem in now.problems.iter().filter(is_new) {
            log(problem);
        }
        let known = &before.usable.pairs;
        let pairs = now.usable.pairs.iter();
        for (name, (key, _)) in pairs.filter(|(name, pair)| known.get(*name) != Some(pair)) {
            tracing::info!(
                object = name,
                serial = key.serial,
                "a local certificate was read"
            );
        }
        self.newest.send_replace(Arc::new(now));
    }
}

pub(super) fn log(problem: &SourceProblem) {
    match problem.severity {
        Severity::Error => tracing::error!("{problem}"),
        Severity::Warning => tracing::warn!("{problem}"),
    }
}

/// Waits until no more events arrive.
fn wait(events: &Receiver<()>, pause: Duration) {
    if events.recv_timeout(pause).is_err() {
        return;
    }
    let end = Instant::now() + LONGEST;
    while Instant::now() < end && events.recv_timeout(QUIET).is_ok() {}
}

/// Returns the directories in which a change may redirect the path.
fn directories(file: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let names = way::names(file).into_iter();
    names.filter_map(|name| Some(name.parent()?.to_owned()))
}
