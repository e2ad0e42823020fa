//! A real `sesame-agent run` with its real Envoy, in temporary directories.

mod conditions;
mod disks;
mod ends;
mod orders;
mod setup;
mod waits;

use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::client::Request;
use crate::envoy::envoy_binary;
use crate::logs::{log_to, tail};
use crate::processes::{self, Process};
use crate::turns::Turn;

pub use conditions::listener_condition;
pub use disks::shared_memory;
pub use orders::{arguments, words};
pub use setup::Setup;

/// Short, because Unix socket paths are limited to 107 bytes.
const ROOT: &str = "/tmp";

/// Timeout for any expected event; long enough on a busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the path of the agent's binary.
pub fn agent_binary() -> PathBuf {
    match std::env::var_os("SESAME_AGENT") {
        Some(path) => path.into(),
        None => beside_test("sesame-agent"),
    }
}

/// Returns the path of a program in the test's build directory.
pub fn beside_test(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let mut candidates = test
        .ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join(name));
    candidates
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| {
            let test = test.display();
            panic!("no {name} next to {test}: run `cargo build --workspace --bins` first")
        })
}

/// Installs a copy of the agent binary at the given path.
pub fn install(at: &Path) {
    install_program(&agent_binary(), at);
}

/// Installs a program by renaming, because the program at `at` may be running.
pub fn install_program(program: &Path, at: &Path) {
    let new = at.with_extension("new");
    std::fs::copy(program, &new).expect("copy the program");
    std::fs::rename(new, at).expect("rename the program");
}

/// A running agent and its Envoy, both killed on drop.
pub struct AgentUnderTest {
    setup: Setup,
    directory: TempDir,
    /// Gateway ports and the local ports to which they are mapped.
    ports: Vec<(u16, u16)>,
    child: Option<Child>,
    _turn: Option<Turn>,
}

impl AgentUnderTest {
    /// Returns the manifest directory that the agent watches.
    pub fn manifests(&self) -> PathBuf {
        self.directory.path().join("m")
    }

    /// Returns the directory with the sockets and Envoy's configuration files.
    pub fn runtime(&self) -> PathBuf {
        self.directory.path().join("r")
    }

    /// Returns the directory with the state that survives a reboot.
    pub fn state(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    /// Returns the local address of a Gateway's port.
    pub fn address(&self, outside: u16) -> SocketAddr {
        let known = self.ports.iter().find(|(port, _)| *port == outside);
        let (_, port) =
            known.unwrap_or_else(|| panic!("port {outside} is not one of this agent's ports"));
        (Ipv4Addr::LOCALHOST, *port).into()
    }

    /// Creates a GET request to a Gateway's port.
    pub fn get(&self, port: u16, host: &str, path: &str) -> Request {
        Request::get(self.address(port), host, path)
    }

    /// Sends requests one by one, and returns their statuses; 0 for a request without a response.
    pub async fn statuses(&self, host: &str, path: &str, count: usize) -> Vec<u16> {
        let mut statuses = Vec::new();
        for _ in 0..count {
            let reply = self.get(80, host, path).send().await;
            statuses.push(reply.map(|reply| reply.status).unwrap_or_default());
        }
        statuses
    }

    /// Adds arguments for the next start of `sesame-agent run`.
    pub fn add_flags(&mut self, flags: &[&str]) {
        let flags = flags.iter().map(ToString::to_string);
        self.setup.flags.extend(flags);
    }

    /// Writes a manifest atomically, by renaming a temporary file.
    pub fn write(&self, name: &str, yaml: &str) {
        let hidden = self.manifests().join(format!(".{name}.tmp"));
        std::fs::write(&hidden, yaml).expect("write a manifest");
        std::fs::rename(&hidden, self.manifests().join(name)).expect("rename a manifest");
    }

    /// Writes a manifest in place, with two writes, like some editors.
    pub fn write_in_place(&self, name: &str, yaml: &str) {
        let (first, second) = yaml.as_bytes().split_at(yaml.len() / 2);
        let mut file = File::create(self.manifests().join(name)).expect("open a manifest");
        file.write_all(first).expect("write a manifest");
        file.flush().expect("write a manifest");
        file.write_all(second).expect("write a manifest");
    }

    /// Removes a manifest.
    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.manifests().join(name)).expect("remove a manifest");
    }

    /// Kills the agent if it is running, and starts it again. Its Envoy keeps running.
    pub fn restart(&mut self) {
        self.kill9();
        let mut line: Vec<String> = self.setup.wrapper.clone();
        if self.setup.small_disks {
            line.extend(disks::on_small_ones(&[self.runtime(), self.state()]));
        }
        let binary = self.setup.agent.clone().unwrap_or_else(agent_binary);
        line.push(binary.to_string_lossy().into_owned());
        line.push("run".to_owned());
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]);
        if !self.setup.other_source {
            command.arg("--manifests").arg(self.manifests());
        }
        command
            .arg("--runtime-dir")
            .arg(self.runtime())
            .arg("--state-dir")
            .arg(self.state())
            .arg("--envoy")
            .arg(self.setup.envoy.clone().unwrap_or_else(envoy_binary))
            .args((!self.setup.no_local_endpoints).then_some("--allow-local-endpoints"))
            .args(match &self.setup.pool {
                None if self.setup.everywhere => vec![],
                None => vec!["--address", "127.0.0.1"],
                Some(network) => vec!["--address-pool", network],
            })
            .args(&self.setup.flags)
            .process_group(0);
        log_to(&mut command, &self.log_path());
        let drains = |flag: &String| flag.starts_with("--drain-seconds");
        if !self.setup.flags.iter().any(drains) {
            command.arg("--drain-seconds=1");
        }
        if self.ports.iter().any(|(outside, inside)| outside != inside) {
            let pairs: Vec<String> = self
                .ports
                .iter()
                .map(|(outside, inside)| format!("{outside}:{inside}"))
                .collect();
            command.args(["--port-map", &pairs.join(",")]);
        }
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {line:?}: {error}"));
        self.child = Some(child);
    }

    /// Replaces an argument for the next start of `sesame-agent run`.
    pub fn change_flag(&mut self, from: &str, to: &str) {
        let flag = self.setup.flags.iter_mut().find(|flag| *flag == from);
        to.clone_into(flag.expect("the flag exists"));
    }

    /// Sends SIGKILL to the agent, but not to its Envoy.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            for process in self.agents() {
                processes::kill9(process.pid);
            }
            let _ = child.kill();
            child.wait().expect("the agent is our child");
        }
    }

    /// Sends SIGSTOP to the agent, but not to its Envoy.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Sends SIGCONT to the agent.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        for process in self.agents() {
            kill(Pid::from_raw(process.pid), signal).expect("the agent runs");
        }
    }

    /// Returns the exit code or negated signal, or `None` if the agent is running.
    pub fn ended(&mut self) -> Option<i32> {
        let status = self
            .child
            .as_mut()?
            .try_wait()
            .expect("the agent is our child")?;
        Some(
            status
                .code()
                .unwrap_or_else(|| -status.signal().unwrap_or(0)),
        )
    }

    /// Returns the agent's Envoy processes, except those that only validate.
    pub fn envoys(&self) -> Vec<Process> {
        let mut found = processes::below(&self.runtime());
        found.retain(|process| {
            process.is("envoy") && !process.arguments.iter().any(|a| a == "--mode")
        });
        found
    }

    fn agents(&self) -> Vec<Process> {
        let mut found = processes::below(&self.runtime());
        let is_agent = |process: &Process| {
            process.is("sesame-agent")
                && process.arguments.get(1).is_some_and(|first| first == "run")
        };
        found.retain(is_agent);
        found
    }

    /// Kills every Envoy of this agent and returns their number.
    pub fn kill9_envoy(&self) -> usize {
        let envoys = self.envoys();
        for envoy in &envoys {
            processes::kill9(envoy.pid);
        }
        envoys.len()
    }

    /// Returns the agent's status, or `None` if the agent does not report it yet.
    pub fn status(&self) -> Option<Value> {
        let output = self.status_command();
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Runs `sesame-agent status` with JSON output.
    pub fn status_command(&self) -> Output {
        let runtime = self.visible(&self.runtime());
        let line = format!("status --output json --runtime-dir {}", runtime.display());
        self.command(&arguments(&line))
    }

    /// Runs a `sesame-agent` command and waits until it exits.
    pub fn command(&self, arguments: &[&str]) -> Output {
        Command::new(agent_binary())
            .args(arguments)
            .env("ENVOY", envoy_binary())
            // Test backends listen on loopback. Set the variable, because some commands reject the
            // flag.
            .env("SESAME_ALLOW_LOCAL_ENDPOINTS", "true")
            .stdin(Stdio::null())
            .output()
            .expect("the agent's binary runs")
    }

    /// Runs a `sesame-agent` command without blocking the current task.
    pub async fn command_beside(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(agent_binary());
        command.args(arguments).stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await;
        let output = output.expect("the task does not panic");
        output.expect("the agent's binary runs")
    }

    /// Returns the combined log of the agent and its Envoy.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// Returns the last 60 lines of [`AgentUnderTest::log`].
    pub fn log_tail(&self) -> String {
        let tail = tail(&self.log_path(), 60);
        format!("--- the agent's last lines:\n{tail}")
    }
}

impl Drop for AgentUnderTest {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log_tail());
        }
        let directory: &Path = self.directory.path();
        let envoys = self.envoys();
        processes::kill_below(directory);
        disks::forget(&envoys);
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
