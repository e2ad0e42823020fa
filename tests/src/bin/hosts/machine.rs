//! Virtual machines made of namespaces. Each is a Debian system with systemd and no network. Its
//! root file system is an overlay that is discarded afterwards.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sesame_tests::envoy::workspace;
use sesame_tests::processes;

use crate::inside::Inside;
use crate::packages::Packages;
use crate::root::base;

/// Exit code of systemd-nspawn when the machine reboots.
const REBOOT: i32 = 133;
const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) struct Machine {
    name: String,
    directory: PathBuf,
    nspawn: Child,
    init: i32,
    /// Kills the machine if this process dies, because the kernel then closes the pipe.
    guard: Child,
}

/// Waits until its input is closed, then kills each control group and unmounts the root.
const GUARD: &str = r#"read -r _
root=$1; shift
for group; do
  while read -r pid; do kill -KILL "$pid"; done <"$group/payload/init.scope/cgroup.procs"
done
umount --recursive --lazy "$root""#;

/// The error contains the reason and a remedy.
pub(crate) fn can_run() -> Result<(), String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("test machines need root: run `sudo make test-hosts`".to_owned());
    }
    // nspawn must be able to create all kinds of namespaces, and mount file systems in them.
    let all = ["--mount", "--pid", "--net", "--uts", "--ipc", "--fork"];
    let tried = Command::new("unshare")
        .args(all)
        .args(["mount", "-t", "tmpfs", "none", "/mnt"])
        .output();
    match tried {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            return Err(format!(
                "test machines need namespaces and mounts (in a container: --privileged): {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ));
        }
        Err(error) => return Err(format!("unshare (Debian: util-linux): {error}")),
    }
    let group = groups("probe");
    if group.is_empty() {
        return Err("test machines need control groups below /sys/fs/cgroup".to_owned());
    }
    let made = group.iter().try_for_each(fs::create_dir_all);
    for group in &group {
        remove_group(group);
    }
    made.map_err(|error| {
        format!("test machines need writable control groups below /sys/fs/cgroup: {error}")
    })
}

impl Machine {
    pub(crate) fn with_packages(name: &str, packages: &Packages) -> Self {
        let machine = Self::start(name);
        machine.inside().install(&packages.first());
        machine
    }

    pub(crate) fn start(name: &str) -> Self {
        let all = workspace().join("target/hosts");
        let directory = all.join(format!("machine-{name}"));
        end(name);
        clear(&directory);
        for part in ["upper", "work", "root"] {
            fs::create_dir_all(directory.join(part)).expect("create the machine's directory");
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            base(&all).display(),
            directory.join("upper").display(),
            directory.join("work").display()
        );
        run(Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &options])
            .arg(directory.join("root")));
        let guard = Command::new("sh")
            .args(["-c", GUARD, "guard"])
            .arg(directory.join("root"))
            .args(groups(name))
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a shell");
        let (nspawn, init) = boot(name, &directory);
        let machine = Self {
            name: name.to_owned(),
            directory,
            nspawn,
            init,
            guard,
        };
        machine.inside().wait_for("the machine runs", |inside| {
            let state = inside.output(&["systemctl", "is-system-running"]);
            (state.trim() == "running").then_some(()).ok_or(state)
        });
        machine
    }

    pub(crate) fn inside(&self) -> Inside {
        Inside::new(self.init)
    }

    pub(crate) fn part(&self, name: &str) {
        let status = Command::new("nsenter")
            .args(["--target", &self.init.to_string(), "--net", "--"])
            .arg(std::env::current_exe().expect("this program has a path"))
            .args([name, "--init", &self.init.to_string()])
            .status()
            .expect("nsenter (Debian: util-linux)");
        if !status.success() {
            eprintln!("{}", self.inside().log());
        }
        assert!(status.success(), "{name}: {status}");
    }

    pub(crate) fn reboot(&mut self) {
        self.inside().output(&["systemctl", "--no-block", "reboot"]);
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.nspawn.try_wait().expect("nspawn is our child") {
                break status;
            }
            assert!(begun.elapsed() < TIMEOUT, "the machine did not stop");
            std::thread::sleep(Duration::from_millis(50));
        };
        assert_eq!(status.code(), Some(REBOOT), "nspawn: {status}");
        (self.nspawn, self.init) = boot(&self.name, &self.directory);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        end(&self.name);
        let _ = self.nspawn.wait();
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        clear(&self.directory);
        for group in groups(&self.name) {
            // The kernel may still be killing processes.
            let begun = Instant::now();
            while group.exists() && begun.elapsed() < Duration::from_secs(10) {
                remove_group(&group);
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// When a PID namespace's first process dies, the kernel kills the other processes in the
/// namespace. If only nspawn died, the machine would keep running.
fn end(name: &str) {
    for group in groups(name) {
        let first = fs::read_to_string(group.join("payload/init.scope/cgroup.procs"));
        for pid in first.unwrap_or_default().lines() {
            processes::kill9(pid.parse().expect("a number"));
        }
    }
}

fn boot(name: &str, directory: &Path) -> (Child, i32) {
    let join = groups(name).into_iter().map(|group| {
        let group = group.display();
        format!("mkdir -p {group} && echo $$ >{group}/cgroup.procs && ")
    });
    let script = join.collect::<String>() + r#"exec systemd-nspawn "$@""#;
    let nspawn = Command::new("sh")
        .args(["-c", &script, "sh", "--directory"])
        .arg(directory.join("root"))
        .arg(format!("--machine=sesame-{name}"))
        .args(["--boot", "--quiet", "--private-network", "--register=no"])
        .args(["--keep-unit", "--console=passive", "--link-journal=no"])
        // The agent duplicates Envoy's sockets, which nspawn forbids by default.
        .arg("--system-call-filter=pidfd_getfd")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("systemd-nspawn (Debian: systemd-container)");
    let begun = Instant::now();
    let init = loop {
        if let Some(init) = init_of(nspawn.id()) {
            break init;
        }
        assert!(begun.elapsed() < TIMEOUT, "the machine did not start");
        std::thread::sleep(Duration::from_millis(5));
    };
    (nspawn, init)
}

/// Returns `None` until the child runs systemd in its own namespaces.
fn init_of(nspawn: u32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{nspawn}/task/{nspawn}/children")).ok()?;
    let init = children.split_whitespace().next()?;
    let program = fs::read_to_string(format!("/proc/{init}/comm")).ok()?;
    let own = fs::read_link("/proc/self/ns/net").ok()?;
    let its = fs::read_link(format!("/proc/{init}/ns/net")).ok()?;
    (program.trim() == "systemd" && own != its)
        .then(|| init.parse().ok())
        .flatten()
}

fn groups(name: &str) -> Vec<PathBuf> {
    let hierarchies = [
        "/sys/fs/cgroup/systemd",
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup",
    ];
    let hierarchies = hierarchies.map(PathBuf::from).into_iter();
    hierarchies
        .filter(|hierarchy| hierarchy.join("cgroup.procs").exists())
        .map(|hierarchy| hierarchy.join(format!("sesame-{name}")))
        .collect()
}

fn remove_group(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_group(&entry.path());
        }
    }
    // A control group that is in use cannot be removed yet.
    let _ = fs::remove_dir(group);
}

fn clear(directory: &Path) {
    let root = directory.join("root");
    let _ = Command::new("umount")
        .args(["--recursive", "--lazy"])
        .arg(&root)
        .stderr(Stdio::null())
        .status();
    let _ = fs::remove_dir_all(directory);
}

fn run(command: &mut Command) {
    let status = command.status().expect("run the program");
    assert!(status.success(), "{command:?}: {status}");
}
