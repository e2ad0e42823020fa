//! Maintains one Gateway's log while its Envoy is running.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::directory::LogDirectory;
use super::plan::{LogPlan, plan};
use super::written::WrittenFile;
use super::{AccessLogSettings, AccessLogTo, LogBounds};
use crate::envoy::Admin;
use crate::envoy::process::launch::Launcher;
use crate::envoy::process::launcher;

/// Interval between checks of the file. Until the next check, Envoy may exceed the size limit.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Pause before retrying a file that Envoy cannot write to.
const RETRY: Duration = Duration::from_secs(5);
/// Time limit for a response from Envoy.
const ANSWER: Duration = Duration::from_secs(5);

/// Rotates one Gateway's log.
#[derive(Debug)]
pub(crate) struct LogRotator {
    log: LogDirectory,
    bounds: LogBounds,
    /// True if the log is written to files.
    wanted: bool,
    /// Launcher of Envoy, which may see a different file system than the agent does.
    launcher: Launcher,
    /// Reason why Envoy cannot write to the file, and time of detection.
    unwritable: Option<(String, Instant)>,
    /// True if the launcher has already tried to open the file.
    asked: bool,
    /// True if Envoy still has to reopen its log.
    untold: bool,
    /// Current file, as found by the last check.
    written: Option<WrittenFile>,
    /// File that another program deleted while Envoy had it open.
    deleted: Option<WrittenFile>,
    /// Last reported reason for not logging.
    told: Option<String>,
}

impl LogRotator {
    /// Creates a rotator for the log in the subdirectory `name` of the log directory. `link` is the
    /// symbolic link to that log.
    pub(crate) fn new(
        settings: &AccessLogSettings,
        name: &str,
        link: PathBuf,
        launcher: Launcher,
    ) -> Self {
        Self {
            log: LogDirectory::new(settings.directory.join(name), link),
            bounds: settings.bounds,
            wanted: settings.to == AccessLogTo::File,
            launcher,
            unwritable: None,
            asked: false,
            // A killed agent may have rotated the file without making Envoy reopen it.
            untold: true,
            written: None,
            deleted: None,
            told: None,
        }
    }

    /// Returns true if the log is written to files, which need maintenance.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Points the link to a file that Envoy can open. Must be called before Envoy starts.
    pub(crate) fn prepare(&mut self) {
        self.look_and_say();
    }

    /// Keeps the log within its limits forever. Reports why nothing is logged, first at the start
    /// and then whenever the reason changes.
    pub(crate) async fn run(mut self, admin: Admin, report: impl Fn(Option<String>)) -> Infallible {
        let admin = admin.with_timeout(ANSWER);
        report(self.told.clone());
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            if self.look_and_say() {
                report(self.told.clone());
            }
            if self.untold {
                // A new Envoy may have taken over.
                admin.reconnect().await;
                // If Envoy does not respond or is about to start, the next check retries this.
                self.untold = admin.post("/reopen_logs").await.is_err();
            } else if let Some(deleted) = self.deleted.take() {
                // At the next check the old file is complete, because Envoy flushes within a
                // second.
                self.rescue(deleted);
            }
        }
    }

    /// Runs one check. Returns true if the reason for not logging has changed.
    fn look_and_say(&mut self) -> bool {
        let trouble = self.look();
        if trouble == self.told {
            return false;
        }
        if let Some(why) = &trouble {
            tracing::warn!("access logs are off: {why}");
        } else {
            tracing::info!("access logs are on again");
        }
        self.told = trouble;
        true
    }

    /// Runs one check. Returns why nothing is logged, or `None` if Envoy logs.
    fn look(&mut self) -> Option<String> {
        if !self.wanted {
            // An old Envoy may open the link until it receives new listeners, so keep the link
            // valid.
            let _ = self.lead(false);
            return None;
        }
        let why = self.why_unwritable().or_else(|| {
            let path = self.log.current();
            match self.bring_within_bounds() {
                Ok(true) => None,
                Ok(false) => Some(format!("the disk of {} is nearly full", path.display())),
                Err(error) => Some(format!("{}: {error}", path.display())),
            }
        })?;
        Some(match self.lead(false) {
            Ok(()) => why,
            Err(error) => format!("{why}; also: {error}"),
        })
    }

    /// Returns why Envoy cannot write to the file, or `None` if it can. The launcher is asked at
    /// the start and while the link points elsewhere, but no sooner than `RETRY` after a failure.
    fn why_unwritable(&mut self) -> Option<String> {
        let known = self.unwritable.as_ref();
        if let Some((why, _)) = known.filter(|(_, found)| found.elapsed() < RETRY) {
            return Some(why.clone());
        }
        let tried = self.log.prepare();
        let leads = self.log.leads_to_file();
        let tried = tried.and_then(|()| match &self.launcher {
            Launcher::Socket(socket) if !leads || !self.asked => {
                let file = self.log.current();
                launcher::try_append(socket, &file).map_err(|error| {
                    io::Error::other(format!(
                        "Envoy cannot write to it: {error}; run a launcher of this version in a unit or container that may write there"
                    ))
                })
            }
            _ => Ok(()),
        });
        self.asked = true;
        let why = tried
            .err()
            .map(|error| format!("{}: {error}", self.log.current().display()));
        self.unwritable = why.clone().map(|why| (why, Instant::now()));
        why
    }

    /// Rotates and removes files as planned. Returns true if Envoy should log to the file.
    fn bring_within_bounds(&mut self) -> io::Result<bool> {
        let facts = self.log.facts()?;
        let LogPlan {
            rotate,
            remove,
            write,
        } = plan(&facts, self.bounds);
        // Rotate first, so that the new number is higher than the numbers of the removed files.
        if rotate {
            self.log.rotate()?;
        }
        for number in remove {
            self.log.remove(number)?;
        }
        self.lead(write)?;
        self.follow()?;
        Ok(write)
    }

    /// Checks whether Envoy still has an old file open.
    fn follow(&mut self) -> io::Result<()> {
        let now = WrittenFile::open(&self.log.current())?;
        let before = self.written.take();
        let replaced = before.filter(|before| !before.is(&now));
        self.written = Some(now);
        if let Some(before) = replaced {
            self.untold = true;
            if before.is_deleted() {
                self.deleted = Some(before);
            }
        }
        Ok(())
    }

    /// Copies lines that Envoy wrote to a file after its deletion into the current file.
    fn rescue(&self, deleted: WrittenFile) {
        let path = self.log.current();
        match deleted.rescue(&path, self.bounds.file_bytes) {
            Ok(bytes) => {
                tracing::warn!(path = %path.display(), bytes, "the access log was deleted; the lines written since then are in the new file");
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the access log was deleted, and the lines written since then are lost");
            }
        }
    }

    fn lead(&mut self, to_file: bool) -> io::Result<()> {
        self.untold |= self.log.lead(to_file)?;
        Ok(())
    }
}
