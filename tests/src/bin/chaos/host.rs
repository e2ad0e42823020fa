//! A host: an agent and its Envoy, with a separate clock, disks and connection.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::RootCertStore;
use sesame_tests::agent::{AgentUnderTest, Setup, agent_binary};
use sesame_tests::client::Request;
use sesame_tests::clock::Clock;
use sesame_tests::envoy::{envoy_binary, older_envoy_binary};
use sesame_tests::processes;

use super::link::Link;
use super::objects;
use super::probe::Probe;
use super::programs::Programs;
use super::schedule::Disk;
use super::volume::{Images, Volume};

const MARKER_TIMEOUT: Duration = Duration::from_secs(2);

/// A host of the run.
pub(crate) struct Host {
    pub(crate) name: String,
    // These are unmounted before the agent's directory is removed.
    state: Volume,
    runtime: Volume,
    pub(crate) agent: AgentUnderTest,
    pub(crate) clock: Clock,
    pub(crate) link: Link,
    /// True while a fault keeps the agent from running.
    pub(crate) is_down: bool,
    directory: PathBuf,
    is_envoy_older: bool,
    is_agent_older: bool,
}

impl Host {
    /// Starts an agent. Hosts after the first one share its turn.
    pub(crate) fn start(
        number: usize,
        beside: Option<&AgentUnderTest>,
        (link, kubeconfig): (Link, &str),
        (directory, images): (&Path, &Images),
        programs: &Programs,
    ) -> anyhow::Result<Self> {
        let name = format!("host-{number}");
        let directory = directory.join(&name);
        std::fs::create_dir(&directory)?;
        let config = directory.join("kubeconfig");
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&config)?;
        file.write_all(kubeconfig.as_bytes())?;
        let (agent, envoy) = (directory.join("sesame-agent"), directory.join("envoy"));
        replace_link(&programs.agent(false), &agent)?;
        replace_link(&envoy_binary(), &envoy)?;

        let clock = Clock::new();
        let command = clock.command();
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let setup = Setup::with_ports(&objects::PORTS)
            .without_manifests()
            .wrapper(&command)
            .agent(&agent)
            .envoy(&envoy)
            .flag("--kube")
            .flag(&format!("--kubeconfig={}", config.display()))
            .flag(&format!("--host={name}"))
            .flag("--concurrency=1")
            .flag("--drain-seconds=2")
            // Objects that vanish during a partition may be many.
            .flag("--max-removal-share=100")
            // Leave inotify instances to the other hosts. Some hosts watch too few files.
            .flag(&format!("--subscription-budget={}", 24 + 8 * (number % 3)));
        let agent = match beside {
            None => setup.prepare(),
            Some(first) => setup.prepare_beside(first),
        };
        let mut host = Self {
            state: Volume::mount(agent.state(), images)?,
            runtime: Volume::mount(agent.runtime(), images)?,
            name,
            agent,
            clock,
            link,
            is_down: false,
            directory,
            is_envoy_older: false,
            is_agent_older: false,
        };
        host.agent.restart();
        Ok(host)
    }

    /// Returns the requests of the load.
    pub(crate) fn probes(&self, trust: &Arc<RootCertStore>) -> Vec<Probe> {
        let http = |request, expected| Probe::Http(Box::new(request), expected);
        let get = |host| self.agent.get(objects::HTTP, host, "/");
        let secure = self.agent.get(objects::HTTPS, objects::SECURE, "/");
        let secure = secure.tls(objects::SECURE, trust);
        let over_http3 = Probe::Http3 {
            server: self.agent.address(objects::HTTP3),
            host: objects::SECURE.to_owned(),
            trust: Arc::clone(trust),
        };
        vec![
            http(get(objects::STEADY), 200),
            http(get(objects::MOVING), 200),
            http(secure.clone(), 200),
            http(get(objects::GUARDED), 403),
            http(secure.http2(), 200),
            Probe::Tcp(self.agent.address(objects::TCP)),
            over_http3,
        ]
    }

    /// Returns a request that succeeds only if the host serves this version of a Gateway's marker.
    pub(crate) fn marker(
        &self,
        gateway: &str,
        version: &str,
        trust: &Arc<RootCertStore>,
    ) -> Request {
        let get = |port| {
            self.agent
                .get(port, objects::MARKER, &format!("/{version}"))
        };
        let request = if gateway == objects::SECOND {
            get(objects::HTTP3).tls(objects::SECURE, trust)
        } else {
            get(objects::HTTP)
        };
        request.timeout(MARKER_TIMEOUT)
    }

    /// Returns the file system that stands for a disk.
    pub(crate) fn volume(&mut self, disk: Disk) -> &mut Volume {
        match disk {
            Disk::State => &mut self.state,
            Disk::Runtime => &mut self.runtime,
        }
    }

    /// Sends a signal to every Envoy of this host.
    pub(crate) fn signal_envoys(&self, signal: Signal) {
        for pid in self.agent.envoy_pids() {
            // The Envoy may have exited in the meantime.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Starts a command that replaces the Envoy. It fails if the agent does not run.
    pub(crate) fn begin_to_replace_envoy(&self, strategy: &str) -> anyhow::Result<Child> {
        let command = Command::new(agent_binary())
            .args(["restart", "--strategy", strategy, "--runtime-dir"])
            .arg(self.agent.runtime())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        command.context("sesame-agent restart")
    }

    /// Replaces Envoy's binary by the older version, or the older one by the current one.
    pub(crate) fn exchange_envoy(&mut self) -> anyhow::Result<()> {
        self.is_envoy_older = !self.is_envoy_older;
        let binary = if self.is_envoy_older {
            older_envoy_binary()
        } else {
            envoy_binary()
        };
        replace_link(&binary, &self.directory.join("envoy"))
    }

    /// Replaces the agent's binary for its next start.
    pub(crate) fn exchange_agent(&mut self, programs: &Programs) -> anyhow::Result<()> {
        self.is_agent_older = !self.is_agent_older;
        let program = programs.agent(self.is_agent_older);
        replace_link(&program, &self.directory.join("sesame-agent"))
    }

    /// Returns true if the Envoy with this PID runs the installed binary.
    pub(crate) fn is_envoy_current(&self, pid: i32) -> bool {
        let running = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let installed = self.directory.join("envoy").canonicalize().ok();
        running.is_some() && running == installed
    }

    /// Returns the directory with the host's files.
    pub(crate) fn files(&self) -> PathBuf {
        let runtime = self.agent.runtime();
        runtime.parent().expect("a parent").to_owned()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A process that waits for a frozen disk cannot be killed.
        self.state.speed_up();
        self.runtime.speed_up();
        processes::kill_below(&self.files());
    }
}

/// A symbolic link stands for an installed binary, because copies are large.
fn replace_link(target: &Path, at: &Path) -> anyhow::Result<()> {
    let new = at.with_extension("new");
    symlink(target, &new).with_context(|| new.display().to_string())?;
    std::fs::rename(&new, at).with_context(|| at.display().to_string())
}
