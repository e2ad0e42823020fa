//! Kills processes even if the test that started them is killed.
//!
//! A small shell reads from a pipe, and only the test's process holds the pipe's write end. When
//! the test's process exits for any reason, the kernel closes the pipe. The shell then kills its
//! own process group, to which the started processes belong. While the shell is alive, the kernel
//! does not reuse the group ID, so no unrelated process can be killed.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `kill 0` signals the shell's own process group.
const SCRIPT: &str = "read -r _; kill -KILL 0";

/// Leader of a process group. The whole group is killed when this process exits.
#[derive(Debug)]
pub struct Guard {
    shell: Child,
    group: i32,
}

impl Guard {
    /// Starts the shell. Its command line contains `directory`, which identifies the shell in the
    /// process list.
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
    fn the_group_is_killed_when_the_pipe_closes() {
        let guard = Guard::start(Path::new("/"));
        let mut sleeper = guard.spawn(Command::new("sleep").arg("600"));
        assert!(sleeper.try_wait().expect("our child").is_none());
        drop(guard);
        let status = sleeper.wait().expect("our child");
        assert_eq!(status.signal(), Some(9), "{status}");
    }
}
