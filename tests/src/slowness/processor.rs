//! Processes that compete with Envoy for CPU time, like a busy neighbor on the host.

use std::process::{Child, Command, Stdio};

use crate::agent::AgentUnderTest;

/// Number of competing processes. Their priority is higher than Envoy's.
const PROCESSES: usize = 3;

pub(super) struct Crowd(Vec<Child>);

impl Crowd {
    pub(super) fn around(agent: &AgentUnderTest) -> Self {
        for envoy in agent.envoys() {
            let pid = envoy.pid.to_string();
            run(
                "taskset",
                &["--all-tasks", "--cpu-list", "--pid", "0", &pid],
            );
            // On Linux, each thread has its own priority.
            let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
            for thread in threads.flatten() {
                let thread = thread.file_name().to_string_lossy().into_owned();
                run("renice", &["-n", "19", "-p", &thread]);
            }
        }
        let spin = || {
            Command::new("taskset")
                .args(["--cpu-list", "0", "sh", "-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .spawn()
                .expect("taskset runs")
        };
        Self((0..PROCESSES).map(|_| spin()).collect())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
}
