//! Reports changes in a directory within milliseconds, without missing a change.
//!
//! A change lists paths, but does not describe their content. Directories are watched, because a
//! watch on a file goes silent when a link is redirected. Infrequent rescans find changes that
//! cause no events, for example on network file systems.

mod batch;
mod scope;
mod timing;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use self::batch::Batch;
use self::scope::ChangeScope;
pub use self::timing::Timing;
use super::manifests::{ReadLimits, tree};
use super::way;

/// Paths that may have changed since the previous `Change`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Files at these absolute paths may have changed.
    Paths(Vec<PathBuf>),
    /// Anything may have changed.
    All,
}

/// A running watch. Dropping it stops the watch.
#[derive(Debug)]
pub struct Watch {
    /// The first change is `All`. Changes are combined if the receiver is slow.
    pub changes: mpsc::Receiver<Change>,
    polling: Arc<Mutex<Option<String>>>,
    first: FirstSeen,
    stop: Sender<Message>,
}

type FirstSeen = Arc<Mutex<Option<SystemTime>>>;

impl Watch {
    /// Watches a directory, which need not exist yet, for files whose names satisfy `is_ours`.
    pub fn start(
        root: &Path,
        limits: ReadLimits,
        timing: Timing,
        is_ours: fn(&OsStr) -> bool,
    ) -> io::Result<Self> {
        let root = std::path::absolute(root)?;
        let (sender, changes) = mpsc::channel(4);
        let (stop, messages) = channel();
        let polling = Arc::new(Mutex::new(None));
        let first = FirstSeen::default();
        let watcher = WatchThread {
            root,
            timing,
            is_ours,
            limits,
            events: stop.clone(),
            inotify: None,
            watched: BTreeMap::new(),
            way: BTreeMap::new(),
            batch: Batch::new(timing),
            waiting: None,
            sender,
            polling: polling.clone(),
            first: Arc::clone(&first),
        };
        std::thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || watcher.run(&messages))?;
        Ok(Self {
            changes,
            polling,
            first,
            stop,
        })
    }

    /// Returns the time of the first event since the last call, or the current time if no event
    /// occurred.
    pub fn first_seen(&self) -> SystemTime {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.take().unwrap_or_else(SystemTime::now)
    }

    /// Returns why the directory is polled, or `None` if it is watched.
    pub fn polling(&self) -> Option<String> {
        self.polling
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Ignore errors: the thread may already have ended.
        let _ = self.stop.send(Message::Stop);
    }
}

#[derive(Debug)]
enum Message {
    Event(notify::Result<Event>),
    Stop,
}

struct WatchThread {
    root: PathBuf,
    timing: Timing,
    is_ours: fn(&OsStr) -> bool,
    limits: ReadLimits,
    events: Sender<Message>,
    inotify: Option<RecommendedWatcher>,
    watched: BTreeMap<PathBuf, tree::Id>,
    /// The root and the links in its path, by the directory that contains them. Any of these may be
    /// created, removed or replaced.
    way: BTreeMap<PathBuf, (tree::Id, BTreeSet<PathBuf>)>,
    batch: Batch,
    /// Not sent yet, because the channel was full.
    waiting: Option<Change>,
    sender: mpsc::Sender<Change>,
    polling: Arc<Mutex<Option<String>>>,
    first: FirstSeen,
}

impl WatchThread {
    fn run(mut self, messages: &Receiver<Message>) {
        self.refresh();
        self.send(Change::All);
        let mut rescan = Instant::now() + self.timing.rescan;
        let mut poll = Instant::now() + self.timing.poll;
        while !self.sender.is_closed() {
            let polled = self.is_polled();
            let mut wake = rescan;
            if polled {
                wake = wake.min(poll);
            }
            if self.waiting.is_some() {
                wake = wake.min(Instant::now() + Duration::from_millis(5));
            }
            if let Some(due) = self.batch.due() {
                wake = wake.min(due);
            }
            match messages.recv_timeout(wake.saturating_duration_since(Instant::now())) {
                Ok(Message::Event(event)) => {
                    self.handle(event);
                    self.record_first();
                }
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            if now >= rescan || polled && now >= poll && self.poll() {
                self.batch.all(now);
            }
            if now >= rescan {
                rescan = now + self.timing.rescan;
            }
            if now >= poll {
                poll = now + self.timing.poll;
            }
            if self.batch.due().is_some_and(|due| due <= now) {
                let change = self.batch.take();
                if change == Change::All {
                    // Watch before sending, so that no later change is missed.
                    self.refresh();
                }
                self.send(change);
            } else if let Some(change) = self.waiting.take() {
                self.send(change);
            }
        }
    }

    fn record_first(&self) {
        if self.batch.due().is_some() {
            let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(SystemTime::now);
        }
    }

    /// Returns true if the thread must also poll.
    fn is_polled(&self) -> bool {
        self.watched.is_empty() || self.is_degraded()
    }

    fn is_degraded(&self) -> bool {
        self.polling
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    fn poll(&self) -> bool {
        self.is_degraded() || matches!(tree::inspect(&self.root), tree::Found::Dir(_))
    }

    fn refresh(&mut self) {
        if let Err(error) = self.try_refresh() {
            let mut polling = self.polling.lock().unwrap_or_else(PoisonError::into_inner);
            if polling.is_none() {
                let every = self.timing.poll;
                tracing::warn!(root = %self.root.display(), %error, ?every, "no inotify: polling");
                *polling = Some(format!(
                    "{error}; raise fs.inotify.max_user_instances or fs.inotify.max_user_watches"
                ));
            }
        } else {
            *self.polling.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Returns an error if inotify cannot watch all directories.
    fn try_refresh(&mut self) -> notify::Result<()> {
        let mut inotify = match self.inotify.take() {
            Some(inotify) => inotify,
            None => self.connect()?,
        };
        let outcome = self.watch_all(&mut inotify);
        self.inotify = Some(inotify);
        outcome
    }

    fn connect(&self) -> notify::Result<RecommendedWatcher> {
        let events = self.events.clone();
        let handler = move |event: notify::Result<Event>| {
            // Ignore events that this watch's own reads cause.
            let reading = event.as_ref().is_ok_and(|event| {
                matches!(event.kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
            });
            if !reading {
                let _ = events.send(Message::Event(event));
            }
        };
        notify::recommended_watcher(handler)
    }

    fn watch_all(&mut self, inotify: &mut RecommendedWatcher) -> notify::Result<()> {
        // A directory may change before its watch starts, so repeat until nothing is new.
        for _ in 0..8 {
            let new_way = self.watch_way(inotify)?;
            if !self.watch_dirs(inotify)? && !new_way {
                return Ok(());
            }
        }
        self.batch.all(Instant::now());
        Ok(())
    }

    fn watch_way(&mut self, inotify: &mut RecommendedWatcher) -> notify::Result<bool> {
        let mut wanted = BTreeMap::<_, (_, BTreeSet<_>)>::new();
        for name in way::names(&self.root) {
            let Some(directory) = name.parent() else {
                continue;
            };
            if let tree::Found::Dir(id) = tree::inspect(directory) {
                let (_, names) = wanted
                    .entry(directory.to_owned())
                    .or_insert_with(|| (id, BTreeSet::new()));
                names.insert(name);
            }
        }
        let is_wanted = |directory: &PathBuf, id| {
            let found = wanted.get(directory);
            found.is_some_and(|(wanted, _)| *wanted == id)
        };
        self.way.retain(|directory, (id, _)| {
            let keep = is_wanted(directory, *id);
            if !keep {
                let _ = inotify.unwatch(directory);
            }
            keep
        });
        let mut new = false;
        for (directory, (id, names)) in wanted {
            match self.way.get_mut(&directory) {
                Some((_, known)) => *known = names,
                None if watch(inotify, &directory)? => {
                    self.way.insert(directory, (id, names));
                    new = true;
                }
                None => {}
            }
        }
        Ok(new)
    }

    fn watch_dirs(&mut self, inotify: &mut RecommendedWatcher) -> notify::Result<bool> {
        // If the root is unreadable, the scan reports the error.
        let dirs = tree::walk_dirs(&self.root, &self.limits).unwrap_or_default();
        let stale: Vec<_> = self
            .watched
            .iter()
            .filter(|(path, id)| dirs.get(*path) != Some(*id))
            .map(|(path, _)| path.clone())
            .collect();
        for path in stale {
            let _ = inotify.unwatch(&self.place(&path));
            self.watched.remove(&path);
        }
        let mut new = false;
        for (path, id) in dirs {
            if !self.watched.contains_key(&path) && watch(inotify, &self.place(&path))? {
                self.watched.insert(path, id);
                new = true;
            }
        }
        Ok(new)
    }

    fn place(&self, relative: &Path) -> PathBuf {
        // Joining an empty path would append a slash.
        if relative.as_os_str().is_empty() {
            self.root.clone()
        } else {
            self.root.join(relative)
        }
    }

    fn handle(&mut self, event: notify::Result<Event>) {
        let now = Instant::now();
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::debug!(%error, "watch error");
                return self.batch.all(now);
            }
        };
        if event.need_rescan() || event.paths.is_empty() {
            // Events were lost, so new directories may not be watched yet.
            return self.batch.all(now);
        }
        for path in &event.paths {
            match self.scope(path, event.kind) {
                ChangeScope::Nothing => {}
                ChangeScope::Tree => self.batch.all(now),
                ChangeScope::File => match event.kind {
                    EventKind::Access(_) => self.batch.whole(path, now),
                    // `To` contains the new path. The `Both` event that follows adds nothing.
                    EventKind::Modify(ModifyKind::Name(RenameMode::To)) => {
                        self.batch.whole(path, now);
                    }
                    EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => {}
                    EventKind::Modify(ModifyKind::Data(_)) => self.batch.writing(path, now),
                    _ => self.batch.path(path, now),
                },
            }
        }
    }

    /// Combines changes while the channel is full.
    fn send(&mut self, change: Change) {
        let change = match (self.waiting.take(), change) {
            (None, change) => change,
            (Some(Change::Paths(mut earlier)), Change::Paths(paths)) => {
                earlier.extend(paths);
                earlier.sort();
                earlier.dedup();
                Change::Paths(earlier)
            }
            _ => Change::All,
        };
        if let Err(TrySendError::Full(change)) = self.sender.try_send(change) {
            self.waiting = Some(match change {
                Change::Paths(paths) if paths.len() > batch::MAX_PATHS => Change::All,
                change => change,
            });
        }
    }
}

/// Returns an error at the watch limit, and false for any other failure.
fn watch(inotify: &mut RecommendedWatcher, dir: &Path) -> notify::Result<bool> {
    match inotify.watch(dir, RecursiveMode::NonRecursive) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind, notify::ErrorKind::MaxFilesWatch) => Err(error),
        Err(error) => {
            // The directory is gone or unreadable. The scan reports that, and the next refresh
            // tries again.
            tracing::debug!(dir = %dir.display(), %error, "cannot watch");
            Ok(false)
        }
    }
}
