//! Replaces one Envoy with another.

use std::fs;
use std::time::{Duration, Instant};

use super::actor::Actor;
use super::stop;
use crate::admin::AdminError;
use crate::process::identity::{Identity, NEXT_PID_FILE, PID_FILE, RunningEnvoy};
use crate::process::{Process, shared_memory};
use crate::restart::{
    self, Attempt, OLD_ADMIN, QuicSinks, RestartError, RestartMethod, Restarted, Retiring, Sink,
    Steering,
};
use crate::settings::{State, SupervisorConfig};
use crate::validate::{Validity, validate};
use sesame_host::inotify::watched_by;
use sesame_host::reserve::VALIDATION;

/// Timeout for a response, long enough if Envoy is loading its largest file.
const ANSWER: Duration = Duration::from_secs(5);
const ATTEMPTS: usize = 4;

impl Actor {
    /// Adopts an earlier agent's Envoy if it responds, replaces it if it has lost its admin socket,
    /// and otherwise stops it.
    pub(super) async fn take_over(&mut self, mut found: Vec<RunningEnvoy>) -> Option<RunningEnvoy> {
        let Some(mut running) = found.pop() else {
            self.sweep();
            return None;
        };
        match found.pop() {
            Some(parent) => running = self.resume(parent, running).await,
            None => self.tidy(&running),
        }
        let info = self.admin.with_timeout(ANSWER).server_info().await;
        running.identity.refresh(&self.config.runtime_dir);
        let stopping = running.identity.stopping;
        match info {
            Ok(_) if !stopping => {
                self.adopt(&running).await;
                return Some(running);
            }
            // A failed hot restart removed this Envoy's admin socket, but another Envoy can still
            // take over.
            Err(AdminError::Connect { .. }) if !stopping && running.identity.lineage.is_some() => {
                self.write_pid_file(&running.identity);
                let request = restart::Request::default();
                match self.replace(&running, &request).await {
                    Ok((child, way)) => {
                        self.retire(running, &child.process, way, &request);
                        return Some(child);
                    }
                    Err(error) => {
                        tracing::error!(%error, "cannot take over from the running Envoy");
                    }
                }
            }
            _ => {}
        }
        self.end_found(&running).await;
        None
    }

    async fn resume(&mut self, mut parent: RunningEnvoy, child: RunningEnvoy) -> RunningEnvoy {
        let (line, next) = (parent.identity.lineage, child.identity.lineage);
        let is_hot = next.is_some_and(|next| next.continues(line, &self.config.runtime_dir));
        if !is_hot {
            // The base ID file now belongs to the second Envoy, so the first must not remove the
            // second's shared memory when it exits.
            parent.identity.lineage = line.filter(|line| line.base_id.is_some());
        }
        let way = if is_hot {
            RestartMethod::Hot
        } else {
            RestartMethod::Handover
        };
        tracing::info!(before = parent.process.pid(), now = child.process.pid(), %way, "resuming the interrupted replacement of an Envoy");
        self.state.send_replace(State::Starting {
            pid: Some(child.process.pid()),
        });
        let attempt = Attempt {
            config: &self.config,
            admin: &self.admin,
            parent: &parent,
            way,
        };
        match attempt.resume(child).await {
            Ok(child) => {
                self.retire(parent, &child.process, way, &restart::Request::default());
                child
            }
            Err(failed) => {
                self.sink = failed.sink;
                tracing::error!("{}", failed.reason);
                parent
            }
        }
    }

    async fn adopt(&self, running: &RunningEnvoy) {
        tracing::info!(pid = running.process.pid(), "adopted a running Envoy");
        if self.retiring.is_none() {
            restart::reset_steering(&running.process);
        }
        // An earlier agent may have made Envoy fail its health check, but clients must not avoid a
        // ready host.
        if let Err(error) = self.admin.post("/healthcheck/ok").await {
            tracing::warn!(%error, "cannot make the running Envoy healthy again; it might keep draining");
        }
        // The Envoy may have no PID file yet.
        self.write_pid_file(&running.identity);
    }

    async fn end_found(&self, running: &RunningEnvoy) {
        let pid = running.process.pid();
        tracing::info!(
            pid,
            "replacing a running Envoy that is unresponsive or already draining"
        );
        self.state.send_replace(State::Stopping { pid });
        let grace = match self.admin.with_timeout(ANSWER).ready().await {
            Ok(_) => self.config.replace_grace,
            Err(_) => Duration::ZERO,
        };
        self.record_stopping(running.identity.clone());
        stop::stop(&running.process, &self.admin, grace).await;
        running.forget(&self.config.runtime_dir);
    }

    /// Must be called only if no Envoy is running.
    fn sweep(&self) {
        let directory = &self.config.runtime_dir;
        for name in [PID_FILE, NEXT_PID_FILE] {
            let path = directory.join(name);
            if let Some(line) = Identity::read(&path).and_then(|identity| identity.lineage) {
                line.remove(directory);
            }
            let _ = fs::remove_file(path);
        }
        let _ = fs::remove_file(directory.join(OLD_ADMIN));
    }

    fn tidy(&mut self, running: &RunningEnvoy) {
        let old = self.config.runtime_dir.join(OLD_ADMIN);
        let answers =
            |path: &std::path::Path| std::os::unix::net::UnixStream::connect(path).is_ok();
        if answers(&old) && !answers(&self.config.admin_socket) {
            // The second Envoy put its socket at this path, and then died.
            let _ = fs::rename(&old, &self.config.admin_socket);
        } else {
            let _ = fs::remove_file(old);
        }
        if let Some(line) = running.identity.lineage
            && matches!(shared_memory::is_initializing(line), Ok(true))
        {
            self.sink = Sink::open(line.next(), &self.config.runtime_dir).ok();
            if let Err(error) = shared_memory::repair(line) {
                tracing::warn!(%error, "cannot repair the shared memory");
            }
        }
        let _ = fs::remove_file(self.config.runtime_dir.join(NEXT_PID_FILE));
    }

    /// On error, the caller must check whether the previous Envoy has exited.
    pub(super) async fn restart(
        &mut self,
        running: &mut RunningEnvoy,
        request: restart::Request,
    ) -> Result<Restarted, RestartError> {
        let start = Instant::now();
        // During a replacement, no process except the two Envoy processes may have sockets at
        // Envoy's addresses.
        self.parked.release();
        if let Some(retiring) = &mut self.retiring {
            request.report(format!(
                "waiting for the previous restart's old Envoy (process {}) to exit",
                retiring.pid()
            ));
            retiring.gone().await;
            self.retiring = None;
            self.config.instances.record_leaving(0);
        }
        let (child, way) = self.replace(running, &request).await?;
        if let Some(bootstrap) = &request.bootstrap {
            self.config.bootstrap.clone_from(bootstrap);
        }
        let parent = std::mem::replace(running, child);
        let restarted = Restarted {
            way,
            before: parent.process.pid(),
            now: running.process.pid(),
            took: start.elapsed(),
        };
        self.retire(parent, &running.process, way, &request);
        self.sink = None;
        self.admin.reconnect().await;
        tracing::info!(before = restarted.before, now = restarted.now, %way, took = ?restarted.took, "Envoy was replaced");
        Ok(restarted)
    }

    async fn replace(
        &mut self,
        parent: &RunningEnvoy,
        request: &restart::Request,
    ) -> Result<(RunningEnvoy, RestartMethod), RestartError> {
        let mut config = self.config.clone();
        if let Some(bootstrap) = &request.bootstrap {
            config.bootstrap.clone_from(bootstrap);
        }
        let facts = restart::gather(parent, &self.admin, &config, request).await;
        let plan = restart::decide(request.strategy, &facts)?;
        self.validate(&config, request).await?;
        if let Some(why) = &plan.not_hot {
            request.report(format!("no hot restart: {why}"));
        }
        if let (true, Some(line)) = (plan.repair, parent.identity.lineage) {
            request.report("repairing the shared memory, which an interrupted restart left locked");
            if let Err(error) = shared_memory::repair(line) {
                return Err(RestartError::Failed(vec![error.to_string()]));
            }
        }
        let mut failures = Vec::new();
        let mut methods = plan.methods.as_slice();
        while let [way, rest @ ..] = methods {
            request.report(format!("{way}: starting the new Envoy"));
            if let (RestartMethod::Hot, Some(sink)) = (way, &mut self.sink) {
                sink.settled(&self.admin).await;
            }
            if *way == RestartMethod::Handover {
                self.quic = QuicSinks::join(&config.runtime_dir, parent, &request.quic);
            }
            let attempt = Attempt {
                config: &config,
                admin: &self.admin,
                parent,
                way: *way,
            };
            methods = rest;
            match attempt.run().await {
                Ok(child) => {
                    request.report(format!("{way}: the new Envoy is serving"));
                    return Ok((child, *way));
                }
                Err(failed) => {
                    self.sink = failed.sink;
                    tracing::error!("{}", failed.reason);
                    request.report(failed.reason.clone());
                    failures.push(failed.reason);
                    if !failed.parent_serves && parent.process.exit().is_none() {
                        request.report("the previous Envoy has handed over its sockets; starting another Envoy immediately");
                        methods = &[RestartMethod::Handover];
                    }
                }
            }
            if parent.process.exit().is_some() {
                failures.push("the previous Envoy has exited, too".to_owned());
                break;
            }
            if failures.len() >= ATTEMPTS {
                break;
            }
        }
        self.quic = QuicSinks::default();
        Err(RestartError::Failed(failures))
    }

    async fn validate(
        &self,
        config: &SupervisorConfig,
        request: &restart::Request,
    ) -> Result<(), RestartError> {
        let directory = config.runtime_dir.join("validate");
        let loan = config.instances.borrow(VALIDATION);
        let _loan = loan.map_err(|lacking| RestartError::NoVerdict(lacking.to_string()))?;
        let candidates = [
            ("bootstrap", Some(&config.bootstrap)),
            ("configuration", request.served.as_ref()),
        ];
        for (what, candidate) in candidates {
            let Some(candidate) = candidate else { continue };
            match validate(&config.binary, &directory, candidate).await {
                Ok(Validity::Valid) => {}
                Ok(Validity::Invalid { envoy_words }) => {
                    return Err(RestartError::Invalid { what, envoy_words });
                }
                Err(error) => return Err(RestartError::NoVerdict(error.to_string())),
            }
        }
        request.report("the new Envoy accepts its bootstrap");
        Ok(())
    }

    fn retire(
        &mut self,
        parent: RunningEnvoy,
        successor: &Process,
        way: RestartMethod,
        request: &restart::Request,
    ) {
        let instances = &self.config.instances;
        instances.record_leaving(watched_by(parent.process.pid()));
        instances.record_running(watched_by(successor.pid()), None);
        let quic = std::mem::take(&mut self.quic).steer(successor);
        let steering = match way {
            RestartMethod::Hot => None,
            RestartMethod::Handover => Steering::start(&parent.process, successor)
                .inspect_err(|error| {
                    if restart::moves_connections() {
                        tracing::debug!(%error, "cannot steer connections; the kernel migrates them");
                    } else {
                        request.report(format!(
                            "{error}, and net.ipv4.tcp_migrate_req is 0: connections that \
                             arrive while the previous Envoy closes its ports will be reset. Give \
                             the agent CAP_NET_BIND_SERVICE or CAP_SYS_PTRACE, or set \
                             net.ipv4.tcp_migrate_req to 1"
                        ));
                    }
                })
                .ok(),
        };
        self.retiring = Some(Retiring::start(
            parent,
            successor,
            way,
            self.config.runtime_dir.clone(),
            self.config.drain_time,
            (steering, quic),
        ));
    }

    pub(super) async fn end_retiring(&mut self) {
        if let Some(retiring) = self.retiring.take() {
            retiring.end().await;
        }
    }
}
