//! Rotates one Gateway's log while the Gateway's Envoy is running.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::directory::LogDirectory;
use super::plan::{LogPlan, plan};
use super::written::WrittenFile;
use super::{AccessLogSettings, AccessLogTo, LogBounds};
use crate::Admin;
use crate::process::launch::Launcher;
use crate::process::launcher;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before retrying a file that Envoy cannot write to.
const RETRY: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(5);

/// Rotates a Gateway's log, and turns logging off while the file cannot be written.
#[derive(Debug)]
pub struct LogRotator {
    log: LogDirectory,
    bounds: LogBounds,
    wanted: bool,
    launcher: Launcher,
    unwritable: Option<(String, Instant)>,
    asked: bool,
    /// True if Envoy has not reopened its log since the link or the file last changed.
    needs_reopen: bool,
    written: Option<WrittenFile>,
    /// Log file that another program deleted while Envoy had it open.
    deleted: Option<WrittenFile>,
    /// The last reported reason for disabled logging.
    reported: Option<String>,
}

impl LogRotator {
    /// Creates a rotator, but no files. `name` is the log's directory below the configured one,
    /// and `link` is the path that Envoy opens.
    pub fn new(
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
            // An earlier agent may have been killed before it made Envoy reopen the rotated log.
            needs_reopen: true,
            written: None,
            deleted: None,
            reported: None,
        }
    }

    /// Returns true if the settings request log files.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Must be called before Envoy starts.
    pub fn prepare(&mut self) {
        self.update_and_log();
    }

    /// Calls `report` at the start, and whenever the reason for disabled logging changes. Never
    /// returns.
    pub async fn run(mut self, admin: Admin, report: impl Fn(Option<String>)) -> Infallible {
        let admin = admin.with_timeout(ANSWER);
        report(self.reported.clone());
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            if self.update_and_log() {
                report(self.reported.clone());
            }
            if self.needs_reopen {
                // The admin connection may still belong to an Envoy that has since been replaced.
                admin.reconnect().await;
                // If Envoy does not respond or is just starting, try again at the next check.
                self.needs_reopen = admin.post("/reopen_logs").await.is_err();
            } else if let Some(deleted) = self.deleted.take() {
                // Envoy has reopened its log and flushes within a second, so the old file is
                // complete.
                self.rescue(deleted);
            }
        }
    }

    fn update_and_log(&mut self) -> bool {
        let trouble = self.update();
        if trouble == self.reported {
            return false;
        }
        if let Some(why) = &trouble {
            tracing::warn!("access logs are off: {why}");
        } else {
            tracing::info!("access logs are on again");
        }
        self.reported = trouble;
        true
    }

    /// Returns why logging is off, or `None` if it is on or disabled.
    fn update(&mut self) -> Option<String> {
        if !self.wanted {
            // An Envoy with older listeners may still open the link, so the link must stay valid.
            let _ = self.lead(false);
            return None;
        }
        let why = self.why_unwritable().or_else(|| {
            let path = self.log.current();
            match self.enforce_bounds() {
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

    /// Within `RETRY` after a failure, returns the same reason without trying again.
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
                        "Envoy cannot write to it: {error}; run a launcher of this version in a \
                         unit or container that can write to it"
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

    /// Returns false if the disk is too full for logging.
    fn enforce_bounds(&mut self) -> io::Result<bool> {
        let facts = self.log.facts()?;
        let LogPlan {
            rotate,
            remove,
            write,
        } = plan(&facts, self.bounds);
        // Rotate first, because the highest existing number determines the next number.
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

    /// Detects a replaced log file, after which Envoy must reopen its log.
    fn follow(&mut self) -> io::Result<()> {
        let now = WrittenFile::open(&self.log.current())?;
        let before = self.written.take();
        let replaced = before.filter(|before| !before.is(&now));
        self.written = Some(now);
        if let Some(before) = replaced {
            self.needs_reopen = true;
            if before.is_deleted() {
                self.deleted = Some(before);
            }
        }
        Ok(())
    }

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
        self.needs_reopen |= self.log.lead(to_file)?;
        Ok(())
    }
}
