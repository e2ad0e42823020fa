//! Kills processes even if the test that started them is killed. A shell waits for the end of a
//! pipe from the test, and then kills its own process group. The kernel does not reuse the group ID
//! while the shell is alive.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `kill 0` signals the shell's own process group.
const SCRIPT: &str = "read -r _; kill -KILL 0";

/// A process group that is killed when this process exits.
#[derive(Debug)]
pub struct Guard {
    shell: Child,
    group: i32,
}

impl Guard {
    /// Starts the shell, whose command line contains `directory`.
    pub fn start(directory: &Path) -> Self {
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "guard"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("start /bin/sh");
        let group = i32::try_from(shell.id()).expect("a process id");
        Self { shell, group }
    }

    /// Starts a command as a member of the group.
    pub fn spawn(&self, command: &mut Command) -> Child {
        command
            .process_group(self.group)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn group_is_killed_when_pipe_closes() {
        let guard = Guard::start(Path::new("/"));
        let mut sleeper = guard.spawn(Command::new("sleep").arg("600"));
        assert!(sleeper.try_wait().expect("our child").is_none());
        drop(guard);
        let status = sleeper.wait().expect("our child");
        assert_eq!(status.signal(), Some(9), "{status}");
    }
}
