//! Runs commands as the agent's user if this process is root.
//!
//! Root never writes to a directory that another user can modify, because a link there could
//! redirect the write.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use nix::unistd::{User, geteuid};

const SERVICE_USER: &str = "sesame";

/// User and group that own the state directory.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    user: u32,
    group: u32,
}

/// Returns `None` unless this process is root and the owner is not. Creates a missing `state`
/// directory for the service user.
pub fn find(state: &Path) -> anyhow::Result<Option<Owner>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let at = || format!("--state-dir {}", state.display());
    match fs::symlink_metadata(state) {
        Ok(found) => Ok((found.uid() != 0).then_some(Owner {
            user: found.uid(),
            group: found.gid(),
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let Some(user) = User::from_name(SERVICE_USER).with_context(at)? else {
                return Ok(None);
            };
            let owner = Owner {
                user: user.uid.as_raw(),
                group: user.gid.as_raw(),
            };
            fs::DirBuilder::new()
                .mode(0o700)
                .create(state)
                .with_context(at)?;
            chown(state, Some(owner.user), Some(owner.group)).with_context(at)?;
            Ok(Some(owner))
        }
        Err(error) => Err(error).with_context(at),
    }
}

impl Owner {
    /// Runs this program as the owner, and returns its standard output.
    /// Fails with the text from standard error if the program fails.
    pub fn run(self, arguments: &[&str], input: &[u8]) -> anyhow::Result<Vec<u8>> {
        let mut child = Command::new("/proc/self/exe")
            .args(arguments)
            .uid(self.user)
            .gid(self.group)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start a process as user {}", self.user))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input)?;
        }
        let output = child.wait_with_output()?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            bail!("{}", words.trim().trim_start_matches("error: "));
        }
        Ok(output.stdout)
    }
}
