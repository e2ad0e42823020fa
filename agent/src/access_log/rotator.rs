//! Looks after the log of one Gateway while its Envoy runs.

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

/// Time between two looks at the file, by which it may grow beyond its size.
const LOOK: Duration = Duration::from_secs(1);
/// Time until a file that Envoy cannot write to is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Time that Envoy has to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Rotator of the log of one Gateway.
#[derive(Debug)]
pub(crate) struct LogRotator {
    log: LogDirectory,
    bounds: LogBounds,
    /// True if the log goes to files.
    wanted: bool,
    /// Launcher of the Envoy that writes, which may see other directories than the agent.
    launcher: Launcher,
    /// Reason for which Envoy cannot write to the file, and the time at which it was found.
    unwritable: Option<(String, Instant)>,
    /// True if the launcher has been asked.
    asked: bool,
    /// True if Envoy has not been told of another file.
    untold: bool,
    /// File at the last look.
    written: Option<WrittenFile>,
    /// File that was deleted while Envoy had it open.
    deleted: Option<WrittenFile>,
    /// Reason for which nothing is logged, as it was told last.
    told: Option<String>,
}

impl LogRotator {
    /// Makes a rotator of the log in the directory `name` of the directory of logs, to which `link` leads.
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
            // An agent may have been killed after it began a file and before it told Envoy, which then writes to the one before.
            untold: true,
            written: None,
            deleted: None,
            told: None,
        }
    }

    /// Returns whether the log goes to files, which have to be looked after.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Has the link lead to what an Envoy can open, before it tries to.
    pub(crate) fn prepare(&mut self) {
        self.look_and_say();
    }

    /// Keeps the log within its bounds for ever, and tells why nothing is logged whenever that changes.
    pub(crate) async fn run(mut self, admin: Admin, tell: impl Fn(Option<String>)) -> Infallible {
        let admin = admin.with_timeout(ANSWER);
        tell(self.told.clone());
        loop {
            tokio::time::sleep(LOOK).await;
            if self.look_and_say() {
                tell(self.told.clone());
            }
            if self.untold {
                // Envoy may be another one by now.
                admin.reconnect().await;
                // One that does not answer, or is about to start, is told at the next look.
                self.untold = admin.post("/reopen_logs").await.is_err();
            } else if let Some(deleted) = self.deleted.take() {
                // A look later nothing more comes to the old file: Envoy flushes within a second.
                self.rescue(deleted);
            }
        }
    }

    /// Does what is due; returns true if it is now for another reason that nothing is logged.
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

    /// Does what is due; returns why nothing is logged, if that is so.
    fn look(&mut self) -> Option<String> {
        if !self.wanted {
            // An Envoy of before may open it until it has other listeners, and finds nothing worse than before.
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
            Err(error) => format!("{why}; and still: {error}"),
        })
    }

    /// Returns why Envoy cannot write to the file; asked only when the link leads elsewhere, and now and then.
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
                        "Envoy cannot write to it: {error}; a launcher of this version in a unit or container that may write there can"
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

    /// Brings the log within its bounds; returns whether it is written.
    fn bring_within_bounds(&mut self) -> io::Result<bool> {
        let facts = self.log.facts()?;
        let LogPlan {
            rotate,
            remove,
            write,
        } = plan(&facts, self.bounds);
        // First, so that numbers go on from those that are removed.
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

    /// Notices if Envoy still has another file open than the current one.
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

    /// Keeps the lines that Envoy wrote to a file after its deletion.
    fn rescue(&self, deleted: WrittenFile) {
        let path = self.log.current();
        match deleted.rescue(&path, self.bounds.file_bytes) {
            Ok(bytes) => {
                tracing::warn!(path = %path.display(), bytes, "the access log was deleted; the lines written since are in the new one");
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the access log was deleted, and the lines written since are lost");
            }
        }
    }

    fn lead(&mut self, to_file: bool) -> io::Result<()> {
        self.untold |= self.log.lead(to_file)?;
        Ok(())
    }
}
