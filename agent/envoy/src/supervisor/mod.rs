//! Supervises one Envoy.
//!
//! One task owns the process. If the agent is killed, Envoy keeps serving.

mod actor;
mod back_off;
mod leave;
mod replace;
mod stop;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tracing::Instrument as _;

use self::actor::{Actor, Stop, SupervisorCommand};
use super::admin::{Admin, MAX_SOCKET_PATH};
use super::process::identity::{Executable, find_running};
use super::restart::{self, Parked, QuicSinks, RestartError, Restarted};
use super::settings::{State, SupervisorConfig};
use sesame_host::{PathError, create_directory};

/// Why supervision could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The admin socket path is too long for the kernel.
    #[error("{path}: path too long for a Unix socket ({len} bytes, maximum {MAX_SOCKET_PATH}); choose a shorter runtime directory", path = .path.display())]
    SocketPath {
        /// Path of the socket.
        path: PathBuf,
        /// Length of the path in bytes.
        len: usize,
    },
    /// The runtime directory is inaccessible.
    #[error(transparent)]
    Io(#[from] PathError),
}

/// Handle for a supervised Envoy.
#[derive(Debug)]
pub struct Supervisor {
    state: watch::Receiver<State>,
    admin: Admin,
    commands: mpsc::Sender<SupervisorCommand>,
    ports: watch::Sender<BTreeSet<SocketAddr>>,
    drain_time: Duration,
}

impl Supervisor {
    /// Adopts or starts an Envoy, and returns before it is live. The CDS and LDS files must exist.
    /// Must be called within a Tokio runtime.
    pub fn start(config: SupervisorConfig) -> Result<Self, StartError> {
        let len = config.admin_socket.as_os_str().len();
        if len > MAX_SOCKET_PATH {
            return Err(StartError::SocketPath {
                path: config.admin_socket,
                len,
            });
        }
        let directory = &config.runtime_dir;
        create_directory(directory).map_err(PathError::at(directory))?;
        let admin = Admin::new(&config.admin_socket);
        let found = find_running(directory, &config.command(None));
        let found = found.map_err(PathError::at(directory))?;
        let (state, seen) = watch::channel(State::Starting { pid: None });
        let drain_time = config.drain_time;
        let (commands, inbox) = mpsc::channel(1);
        let (ports, wanted_ports) = watch::channel(BTreeSet::new());
        let actor = Actor {
            admin: admin.clone(),
            log: config.log(),
            config,
            state,
            inbox,
            deaths: 0,
            retiring: None,
            sink: None,
            ports: wanted_ports,
            parked: Parked::default(),
            parked_until: None,
            quic: QuicSinks::default(),
            loan: None,
        };
        tokio::spawn(actor.run(found).in_current_span());
        Ok(Self {
            state: seen,
            admin,
            commands,
            ports,
            drain_time,
        })
    }

    /// Returns how long connections may take to finish while Envoy drains.
    pub fn drain_time(&self) -> Duration {
        self.drain_time
    }

    /// Returns an admin client if [`Supervisor::start`] would find a running Envoy.
    pub fn finds_running(config: &SupervisorConfig) -> io::Result<Option<Admin>> {
        let found = find_running(&config.runtime_dir, &config.command(None))?;
        Ok((!found.is_empty()).then(|| Admin::new(&config.admin_socket)))
    }

    /// Stops the running Envoy processes whose binary is `own`, and returns their number. Drains a
    /// serving Envoy for at most `grace`, but lets a replaced Envoy finish its own drain.
    pub async fn end_own(
        config: &SupervisorConfig,
        own: &Executable,
        grace: Duration,
    ) -> io::Result<usize> {
        let admin = Admin::new(&config.admin_socket);
        let mut found = find_running(&config.runtime_dir, &config.command(None))?;
        found.retain(|running| {
            let executable = running.identity.executable.as_ref();
            executable.is_some_and(|executable| executable.is_same(own))
        });
        let ends = found.iter().map(|running| async {
            let exit = leave::end(config, &admin, running, grace).await;
            tracing::info!(pid = running.process.pid(), %exit, "an Envoy of this launcher has exited");
        });
        futures::future::join_all(ends).await;
        Ok(found.len())
    }

    /// Stops all running Envoy processes, and returns their number. Drains the newest for at most
    /// `grace`.
    pub async fn end_running(config: &SupervisorConfig, grace: Duration) -> io::Result<usize> {
        let admin = Admin::new(&config.admin_socket);
        let mut found = find_running(&config.runtime_dir, &config.command(None))?;
        let mut grace = grace;
        let count = found.len();
        // Stop the newest first, because an Envoy that is taking over depends on the previous one.
        while let Some(running) = found.pop() {
            let exit = stop::stop(&running.process, &admin, grace).await;
            tracing::info!(pid = running.process.pid(), %exit, "stopped an Envoy that is no longer needed");
            running.forget(&config.runtime_dir);
            grace = Duration::ZERO;
        }
        Ok(count)
    }

    /// Returns a channel with Envoy's state.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Sets the addresses at which new connections wait while a dead Envoy is restarted.
    pub fn park(&self, addresses: BTreeSet<SocketAddr>) {
        self.ports.send_if_modified(|ports| {
            let other = *ports != addresses;
            *ports = addresses;
            other
        });
    }

    /// Stops parking at all other addresses, because a port that is about to close must refuse
    /// connections.
    pub fn park_only(&self, addresses: &BTreeSet<SocketAddr>) {
        let left = self
            .ports
            .borrow()
            .intersection(addresses)
            .copied()
            .collect();
        self.park(left);
    }

    /// Returns an admin client, which remains usable after Envoy is restarted.
    pub fn admin(&self) -> Admin {
        self.admin.clone()
    }

    /// Replaces Envoy without dropping requests. Do not write xDS files until this returns.
    pub async fn restart(&self, request: restart::Request) -> Result<Restarted, RestartError> {
        let (done, wait) = oneshot::channel();
        let asked = self
            .commands
            .send(SupervisorCommand::Restart(request, done))
            .await;
        asked.map_err(|_| RestartError::Stopping)?;
        wait.await.map_err(|_| RestartError::Stopping)?
    }

    /// Drains Envoy for at most `grace`, and waits for it to exit.
    pub async fn stop(self, grace: Duration) {
        let (done, wait) = oneshot::channel();
        let stop = SupervisorCommand::Stop(Stop { grace, done });
        if self.commands.send(stop).await.is_ok() {
            // Ignore errors: the task ends only after Envoy has exited.
            let _ = wait.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    use crate::settings::RestartBackoff;

    #[test]
    fn the_pause_doubles_to_its_limit() {
        let backoff = RestartBackoff::default();
        let millis: Vec<u128> = [1, 2, 3, 4, 8, 9, 100]
            .map(|deaths| backoff.pause(deaths).as_millis())
            .into();
        assert_eq!(millis, [10, 100, 200, 400, 6400, 10_000, 10_000]);
    }

    #[tokio::test]
    async fn supervisor_refuses_too_long_socket_path() {
        let long = format!("/tmp/{}/admin.sock", "x".repeat(120));
        let config = SupervisorConfig::new("/bin/true", "/nonexistent", long, Bytes::new());
        assert!(matches!(
            Supervisor::start(config),
            Err(StartError::SocketPath { .. })
        ));
    }
}
