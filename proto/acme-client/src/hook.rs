//! Runs the operator's program that changes TXT records for DNS-01.
//!
//! Never uses a shell. The hostname comes from a Gateway, and the value is base64url.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::FusedFuture as _;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStderr, Command};

/// Includes the time until the CA can see the record.
const TIMEOUT: Duration = Duration::from_secs(300);
/// How long to read the output after the program has ended. Its own children may keep it open.
const REST: Duration = Duration::from_millis(200);
/// Maximum number of bytes of the output that are logged.
const MAX_OUTPUT: u64 = 1024;

/// The operator's program.
#[derive(Clone, Debug)]
pub struct DnsHook(pub PathBuf);

impl DnsHook {
    /// Runs `PROGRAM ACTION NAME VALUE`, where the name is the record's.
    pub async fn run(&self, action: &str, hostname: &str, value: &str) -> Result<(), String> {
        let Self(program) = self;
        let shown = program.display();
        if !program.is_absolute() {
            return Err(format!(
                "acme-dns-hook {shown}: expected an absolute path; correct the setting"
            ));
        }
        let record = format!("_acme-challenge.{hostname}");
        let mut child = Command::new(program)
            .args([action, &record, value])
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("acme-dns-hook {shown} cannot be run: {error}"))?;
        let mut output = Vec::new();
        let ended = wait(&mut child, &mut output);
        let status = match tokio::time::timeout(TIMEOUT, ended).await {
            Ok(status) => status.map_err(|error| error.to_string())?,
            Err(_) => {
                return Err(format!(
                    "acme-dns-hook {shown} {action} did not end in {TIMEOUT:?}; it was killed"
                ));
            }
        };
        if status.success() {
            return Ok(());
        }
        let output = String::from_utf8_lossy(&output);
        let output = output.trim();
        // Tenants can read the returned message, and the output may contain credentials.
        tracing::warn!(program = %shown, action, %hostname, %status, output, "acme-dns-hook failed");
        Err(format!(
            "acme-dns-hook {action} failed ({status}); see the log"
        ))
    }
}

/// Waits for the program, not for the end of its output. Dropping the future kills the program.
async fn wait(child: &mut Child, output: &mut Vec<u8>) -> io::Result<ExitStatus> {
    let mut group = Group::of(child);
    let reading = read(child.stderr.take(), output).fuse();
    tokio::pin!(reading);
    let status = tokio::select! {
        status = child.wait() => status,
        () = &mut reading => child.wait().await,
    };
    // The process ID may belong to another process from now on.
    group.0 = None;
    if !reading.is_terminated() {
        let _ = tokio::time::timeout(REST, reading).await;
    }
    status
}

async fn read(stderr: Option<ChildStderr>, output: &mut Vec<u8>) {
    let Some(mut stderr) = stderr else {
        return;
    };
    // The program may close its output, or write more than is kept.
    let _ = (&mut stderr).take(MAX_OUTPUT).read_to_end(output).await;
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
}

/// Kills the program with its children when dropped.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Ignore errors: all processes are already gone.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn hook_gets_arguments_and_limited_environment() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("hook");
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> {}/out\nenv > {}/env\nexit 3\n",
            dir.path().display(),
            dir.path().display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let hook = DnsHook(program);
        let why = hook
            .run("present", "a.test", "x; rm -rf $HOME")
            .await
            .unwrap_err();
        let expected = "acme-dns-hook present failed (exit status: 3); see the log";
        assert_eq!(why, expected);
        let environment = fs::read_to_string(dir.path().join("env")).unwrap();
        assert!(!environment.contains("CARGO"), "{environment}");
        let out = fs::read_to_string(dir.path().join("out")).unwrap();
        assert_eq!(out, "present _acme-challenge.a.test x; rm -rf $HOME\n");
        let missing = DnsHook(dir.path().join("none"));
        let why = missing.run("present", "a.test", "x").await.unwrap_err();
        assert!(why.contains("cannot be run"), "{why}");
        let relative = DnsHook(PathBuf::from("hook"));
        let why = relative.run("present", "a.test", "x").await.unwrap_err();
        assert!(why.contains("expected an absolute path"), "{why}");
    }
}
