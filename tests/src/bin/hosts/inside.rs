//! Commands, units, processes and files inside a machine.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Not a loopback address, because the agent rejects those.
pub(crate) const BACKEND: &str = "192.0.2.10";
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub(crate) struct Inside {
    init: i32,
}

impl Inside {
    pub(crate) fn new(init: i32) -> Self {
        Self { init }
    }

    /// Returns the PID as seen by the test.
    pub(crate) fn init(&self) -> i32 {
        self.init
    }

    pub(crate) fn run(&self, command: &[&str]) -> Output {
        Command::new("nsenter")
            .args(["--target", &self.init.to_string()])
            .args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"])
            .args(["--", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"])
            .args([
                "HOME=/root",
                "LANG=C.UTF-8",
                "DEBIAN_FRONTEND=noninteractive",
            ])
            .args(command)
            .stdin(Stdio::null())
            .output()
            .expect("nsenter (Debian: util-linux)")
    }

    pub(crate) fn output(&self, command: &[&str]) -> String {
        String::from_utf8_lossy(&self.run(command).stdout).into_owned()
    }

    pub(crate) fn ok(&self, command: &[&str]) -> String {
        let output = self.run(command);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{command:?}: {}\n{stdout}{}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr),
            self.log()
        );
        stdout
    }

    pub(crate) async fn meanwhile(&self, command: &'static [&'static str]) -> String {
        let inside = self.clone();
        let ran = tokio::task::spawn_blocking(move || inside.ok(command)).await;
        ran.expect("the task does not panic")
    }

    pub(crate) async fn kill(&self, unit: &str, signal: &str) {
        let (inside, unit, signal) = (self.clone(), unit.to_owned(), format!("--signal={signal}"));
        let killed = tokio::task::spawn_blocking(move || {
            inside.ok(&["systemctl", "kill", "--kill-whom=main", &signal, &unit])
        });
        killed.await.expect("the task does not panic");
    }

    pub(crate) fn install(&self, packages: &[PathBuf]) {
        for package in packages {
            self.put(package);
        }
        let mut command = vec!["dpkg", "--install"];
        let names: Vec<String> = packages.iter().map(|path| in_machine(path)).collect();
        command.extend(names.iter().map(String::as_str));
        self.ok(&command);
    }

    /// Writes a file that only root can read.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let to = self.path(path);
        let directory = to.parent().expect("a directory");
        fs::create_dir_all(directory).expect("create a directory in the machine");
        fs::write(&to, text).expect("write a file in the machine");
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&to, mode).expect("the file exists");
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(crate) fn put(&self, file: &Path) {
        let to = self.path(&in_machine(file));
        fs::copy(file, to).expect("write a file in the machine");
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.init))
    }

    pub(crate) fn age(&self) -> Duration {
        let stat =
            fs::read_to_string(format!("/proc/{}/stat", self.init)).expect("the process runs");
        let (_, after) = stat.rsplit_once(") ").expect("a name in parentheses");
        let ticks = after.split(' ').nth(19).expect("a time");
        let ticks: u64 = ticks.parse().expect("a number");
        let uptime = fs::read_to_string("/proc/uptime").expect("/proc/uptime is readable");
        let uptime = uptime.split(' ').next().expect("a time");
        let uptime = Duration::from_secs_f64(uptime.parse().expect("a number"));
        // Linux has 100 ticks per second on common platforms.
        uptime.saturating_sub(Duration::from_millis(ticks * 10))
    }

    pub(crate) fn serve(&self, yaml: &str) {
        let directory = "/etc/sesame/manifests";
        fs::write(self.path("/etc/sesame/all.new"), yaml).expect("manifests are written");
        let script = format!(
            "chown root:sesame /etc/sesame/all.new && chmod 640 /etc/sesame/all.new && mv /etc/sesame/all.new {directory}/all.yaml"
        );
        self.ok(&["sh", "-c", &script]);
    }

    pub(crate) fn backend_address(&self) {
        self.ok(&[
            "ip",
            "address",
            "replace",
            &format!("{BACKEND}/32"),
            "dev",
            "lo",
        ]);
    }

    /// By default, agents reject endpoints on their own host.
    pub(crate) fn allow_host_endpoints(&self) {
        self.ok(&[
            "systemctl",
            "set-environment",
            "SESAME_HOST_ENDPOINTS=allow",
        ]);
    }

    pub(crate) fn property(&self, unit: &str, property: &str) -> String {
        let value = self.ok(&["systemctl", "show", "--property", property, "--value", unit]);
        value.trim().to_owned()
    }

    /// Returns the result as numbered in the machine's PID namespace.
    pub(crate) fn main_pid(&self, unit: &str) -> u32 {
        let pid = self.property(unit, "MainPID");
        pid.parse().expect("a number")
    }

    /// Returns the result as numbered in the machine's PID namespace.
    pub(crate) fn envoys(&self) -> Vec<u32> {
        let pids = self.output(&[
            "pgrep",
            "--full",
            "^/usr/lib/sesame/envoy .*--config-path /run/sesame/gateways/.*/bootstrap.pb",
        ]);
        pids.lines()
            .map(|pid| pid.parse().expect("a number"))
            .collect()
    }

    pub(crate) fn log(&self) -> String {
        self.output(&[
            "journalctl",
            "--no-pager",
            "--lines",
            "60",
            "--unit",
            "sesame*",
        ])
    }

    /// Panics with the last error on timeout.
    pub(crate) fn wait_for<T, E: Display>(
        &self,
        what: &str,
        mut look: impl FnMut(&Self) -> Result<T, E>,
    ) -> T {
        let begun = Instant::now();
        loop {
            match look(self) {
                Ok(found) => return found,
                Err(why) if begun.elapsed() > TIMEOUT => {
                    panic!("{what}: {why}\n{}", self.log())
                }
                Err(_) => std::thread::sleep(POLL),
            }
        }
    }

    pub(crate) async fn wait<T: Send + 'static>(
        &self,
        what: &'static str,
        look: impl FnMut(&Self) -> Result<T, String> + Send + 'static,
    ) -> T {
        let inside = self.clone();
        let waited = tokio::task::spawn_blocking(move || inside.wait_for(what, look)).await;
        waited.expect("the condition is met")
    }
}

fn in_machine(file: &Path) -> String {
    let name = file.file_name().and_then(|name| name.to_str());
    format!("/root/{}", name.expect("a name"))
}
