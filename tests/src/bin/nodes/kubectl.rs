//! kubectl, as users run it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sesame_tests::manifests::yaml;

use crate::tools::tool;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between polls, each of which starts a process.
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Clone, Debug)]
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub(crate) fn new(kubeconfig: &Path) -> Self {
        Self {
            program: tool("kubectl"),
            kubeconfig: kubeconfig.to_owned(),
        }
    }

    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> Output {
        tokio::task::block_in_place(|| {
            let mut child = Command::new(&self.program)
                .arg("--kubeconfig")
                .arg(&self.kubeconfig)
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("kubectl runs");
            let mut stdin = child.stdin.take().expect("stdin is piped");
            // kubectl may exit without reading its input.
            let _ = stdin.write_all(input.as_bytes());
            drop(stdin);
            child.wait_with_output().expect("kubectl exits")
        })
    }

    /// Returns a command that runs a script in which `kubectl` uses this cluster.
    pub(crate) fn for_script(&self, script: &Path) -> Command {
        let mut path = self
            .program
            .parent()
            .expect("the program has a directory")
            .to_owned()
            .into_os_string();
        path.push(":/usr/sbin:/usr/bin:/sbin:/bin");
        let mut command = Command::new(script);
        command
            .env("PATH", path)
            .env("KUBECONFIG", &self.kubeconfig);
        command
    }

    pub(crate) fn with_plugins(&self, directory: &Path, arguments: &[&str]) -> Output {
        let mut path = directory.as_os_str().to_owned();
        path.push(":/usr/bin:/bin");
        let mut command = self.for_script(&self.program);
        command.env("PATH", path).args(arguments);
        tokio::task::block_in_place(|| command.output().expect("kubectl runs"))
    }

    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        checked(arguments, &self.run(arguments, ""))
    }

    pub(crate) fn apply(&self, objects: &[Value]) {
        let arguments = ["apply", "--filename", "-"];
        checked(&arguments, &self.run(&arguments, &yaml(objects)));
    }

    pub(crate) fn get(&self, arguments: &[&str]) -> Value {
        let mut all = vec!["get", "--output", "json"];
        all.extend(arguments);
        serde_json::from_str(&self.ok(&all)).expect("kubectl prints JSON")
    }

    pub(crate) async fn until_ok(&self, what: &str, arguments: &[&str]) {
        self.until(what, |kubectl| {
            let output = kubectl.run(arguments, "");
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success().then_some(()).ok_or(stderr)
        })
        .await;
    }

    /// On timeout, panics with the last observation.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        mut look: impl FnMut(&Self) -> Result<T, String>,
    ) -> T {
        let begun = Instant::now();
        loop {
            match look(self) {
                Ok(found) => return found,
                Err(why) => assert!(
                    begun.elapsed() < TIMEOUT,
                    "{what}: timed out after {TIMEOUT:?}; last: {why}"
                ),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub(crate) fn rolled_out(&self, what: &str) {
        let timeout = format!("--timeout={}s", TIMEOUT.as_secs());
        self.ok(&[
            "rollout",
            "status",
            what,
            "--namespace=sesame-system",
            &timeout,
        ]);
    }
}

fn checked(arguments: &[&str], output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "kubectl {arguments:?}: {}\n{text}{errors}",
        output.status
    );
    text
}
