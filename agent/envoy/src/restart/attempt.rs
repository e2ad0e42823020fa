//! Makes one attempt to replace the first Envoy with a second one.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sesame_render::connection_ids::IdMark;
use tokio::time::{sleep, timeout};

use super::{RestartMethod, Sink};
use crate::admin::{Admin, Readiness, ServerInfo};
use crate::log::Mark;
use crate::process::identity::{Identity, NEXT_PID_FILE, PID_FILE, RunningEnvoy};
use crate::process::launch::launch;
use crate::process::{Lineage, shared_memory};
use crate::settings::SupervisorConfig;
use sesame_host::inotify::watched_by;
use sesame_host::{durable, listening, remove_if_exists};

/// Must not be longer than `admin.sock`, because only that socket's path length is checked.
pub(crate) const OLD_ADMIN: &str = "old.sock";
const ASK: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);
const KILLED: Duration = Duration::from_secs(5);

pub(crate) struct Attempt<'a> {
    pub(crate) config: &'a SupervisorConfig,
    pub(crate) admin: &'a Admin,
    pub(crate) parent: &'a RunningEnvoy,
    pub(crate) way: RestartMethod,
}

#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) reason: String,
    /// True if the first Envoy still accepts connections after the attempt.
    pub(crate) parent_serves: bool,
    /// Kept open until the first Envoy exits or the next attempt starts.
    pub(crate) sink: Option<Sink>,
}

impl Attempt<'_> {
    pub(crate) async fn run(&self) -> Result<RunningEnvoy, Failed> {
        let lineage = match (self.way, self.parent.identity.lineage) {
            (RestartMethod::Hot, Some(lineage)) => Some(lineage.next()),
            _ => self.config.new_lineage(),
        };
        let before = fs::read(self.config.command(None).bootstrap);
        let listened = listening::for_process(self.parent.process.pid()).count();
        let mark = self.config.log().mark();
        let instances = &self.config.instances;
        let started = instances
            .borrow(watched_by(self.parent.process.pid()))
            .map_err(io::Error::other)
            .and_then(|loan| Ok((self.start(lineage)?, loan)));
        // When the loan is dropped, the reserve reacquires the instances that the new Envoy does
        // not use.
        let (child, _loan) = match started {
            Ok(started) => started,
            Err(error) => {
                self.put_back(lineage, before);
                return Err(Failed {
                    reason: format!("{}: cannot start the new Envoy: {error}", self.way),
                    parent_serves: true,
                    sink: None,
                });
            }
        };
        self.finish(child, before, listened, mark).await
    }

    /// Continues a crashed agent's attempt.
    pub(crate) async fn resume(&self, child: RunningEnvoy) -> Result<RunningEnvoy, Failed> {
        // The first Envoy's original number of sockets is unknown. If it has none left, it has
        // handed them over.
        let (listened, mark) = (1, self.config.log().mark());
        let bootstrap = fs::read(self.config.command(None).bootstrap);
        self.finish(child, bootstrap, listened, mark).await
    }

    /// On failure, kills the second Envoy and restores `bootstrap`.
    async fn finish(
        &self,
        child: RunningEnvoy,
        bootstrap: io::Result<Vec<u8>>,
        listened: usize,
        mark: Mark,
    ) -> Result<RunningEnvoy, Failed> {
        let Err(reason) = self.took_over(&child, listened).await else {
            return Ok(self.commit(child));
        };
        let words = self.config.log().last_words(mark);
        let (parent_serves, sink) = self.abandon(&child, bootstrap, listened).await;
        Err(Failed {
            reason: format!("{}: {reason}: {words}", self.way),
            parent_serves,
            sink,
        })
    }

    fn start(&self, lineage: Option<Lineage>) -> io::Result<RunningEnvoy> {
        let mut command = self.config.command(lineage);
        command.id_mark = IdMark::after(self.parent.identity.id_mark);
        if self.way == RestartMethod::Handover {
            // The second Envoy will replace the socket at this path. Keep a link to the first
            // Envoy's socket.
            let old = self.old_admin();
            remove_if_exists(&old)?;
            match fs::hard_link(&self.config.admin_socket, &old) {
                // The first Envoy lost its socket in an earlier restart.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result?,
            }
        }
        self.config.write_files(&command)?;
        let held = launch(
            self.config.launcher_for(lineage),
            &command,
            &self.config.log(),
        )?;
        let identity = Identity::of(held.process(), &command, &self.config.bootstrap);
        identity.write(&self.config.runtime_dir.join(NEXT_PID_FILE))?;
        Ok(RunningEnvoy {
            identity,
            process: held.release()?,
        })
    }

    /// Fails if the second Envoy exits, or does not respond in time.
    async fn took_over(&self, child: &RunningEnvoy, listened: usize) -> Result<(), String> {
        let mut deadline = Instant::now() + self.config.takeover;
        let mut extended = false;
        let admin = self.admin.with_timeout(ASK);
        loop {
            if let Some(exit) = child.process.exit() {
                return Err(format!("the new Envoy ended ({exit})"));
            }
            if self.has_admin_of_child()
                && let Ok(info) = admin.server_info().await
                && info.state == Readiness::Live
                && self.is_child(child, &info)
            {
                return Ok(());
            }
            if Instant::now() > deadline {
                if !extended && self.has_given_away(listened) {
                    // The first Envoy has already handed over sockets, so killing the second would
                    // interrupt service.
                    (deadline, extended) = (Instant::now() + self.config.takeover, true);
                    continue;
                }
                return Err(format!(
                    "the new Envoy did not take over within {:?}",
                    self.config.takeover
                ));
            }
            sleep(POLL).await;
        }
    }

    /// Returns true if the admin socket may belong to the second Envoy. In a handover, the inodes
    /// differ once that Envoy has created its own socket.
    fn has_admin_of_child(&self) -> bool {
        let inode = |path: &std::path::Path| fs::metadata(path).map(|meta| meta.ino()).ok();
        self.way == RestartMethod::Hot
            || inode(&self.config.admin_socket) != inode(&self.old_admin())
    }

    fn is_child(&self, child: &RunningEnvoy, info: &ServerInfo) -> bool {
        self.way == RestartMethod::Handover || info.lineage() == child.identity.lineage
    }

    fn commit(&self, mut child: RunningEnvoy) -> RunningEnvoy {
        child.identity.refresh(&self.config.runtime_dir);
        let noted = child
            .identity
            .write(&self.config.runtime_dir.join(PID_FILE))
            // The file may be missing if an earlier agent crashed before writing it.
            .and_then(|()| remove_if_exists(&self.config.runtime_dir.join(NEXT_PID_FILE)));
        if let Err(error) = noted {
            // A later agent can still identify the process by its command line.
            tracing::warn!(%error, "cannot write the pid file");
        }
        child
    }

    async fn abandon(
        &self,
        child: &RunningEnvoy,
        bootstrap: io::Result<Vec<u8>>,
        listened: usize,
    ) -> (bool, Option<Sink>) {
        let lineage = child.identity.lineage;
        child.process.kill();
        if timeout(KILLED, child.process.wait()).await.is_err() {
            tracing::warn!(
                pid = child.process.pid(),
                "Envoy did not exit after SIGKILL"
            );
        }
        let sink = lineage
            .filter(|_| self.way == RestartMethod::Hot)
            .and_then(|line| {
                Sink::open(line, &self.config.runtime_dir)
                    .inspect_err(|error| {
                        tracing::error!(%error, "cannot receive replies from the serving Envoy");
                    })
                    .ok()
            });
        self.put_back(lineage, bootstrap);
        (!self.has_given_away(listened), sink)
    }

    /// Returns true if the first Envoy has closed sockets, which it does in a hot restart when the
    /// second requests it.
    fn has_given_away(&self, listened: usize) -> bool {
        self.way == RestartMethod::Hot
            && listening::for_process(self.parent.process.pid()).count() < listened
    }

    fn put_back(&self, lineage: Option<Lineage>, bootstrap: io::Result<Vec<u8>>) {
        if let Some(line) = lineage {
            if self.way == RestartMethod::Hot {
                if let Err(error) = shared_memory::repair(line) {
                    tracing::warn!(%error, "cannot repair the shared memory");
                }
            } else {
                line.remove(&self.config.runtime_dir);
            }
        }
        if self.way == RestartMethod::Handover {
            // Ignore errors, because the first Envoy may have had no admin socket.
            let _ = fs::rename(self.old_admin(), &self.config.admin_socket);
        }
        let _ = fs::remove_file(self.config.runtime_dir.join(NEXT_PID_FILE));
        let path = self.config.command(None).bootstrap;
        if let Err(error) = bootstrap.and_then(|bytes| durable::replace_file(&path, &bytes)) {
            tracing::warn!(%error, "cannot restore the bootstrap");
        }
    }

    fn old_admin(&self) -> PathBuf {
        self.config.runtime_dir.join(OLD_ADMIN)
    }
}
