//! The disks of a host: small file systems that can fill up and stop responding.

use std::fs::{File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sesame_tests::network;

use super::schedule::Slowness;

/// Large enough for the logs of an hour, small enough to fill quickly.
const SIZE: u64 = 48 << 20;
const FILLER: &str = "filler";
/// Freezes and thaws a file system. It thaws even if this program is killed, because a frozen file
/// system outlives its mount namespace. The directory is not an argument, because tests kill
/// processes by their arguments.
const FREEZE: &str = r#"
trap 'fsfreeze --unfreeze "$DIRECTORY"; exit' HUP INT TERM
for _ in $(seq "$TIMES"); do
  fsfreeze --freeze "$DIRECTORY"; sleep "$FROZEN" & wait $!
  fsfreeze --unfreeze "$DIRECTORY"; sleep "$THAWED" & wait $!
done"#;
/// A fault lasts at most 20 seconds.
const TIMES: &str = "60";

/// A mounted file system, which is unmounted on drop.
pub(crate) struct Volume {
    directory: PathBuf,
    freezing: Option<Child>,
}

impl Volume {
    /// Mounts a file system on a directory.
    pub(crate) fn mount(directory: PathBuf, images: &Images) -> anyhow::Result<Self> {
        let volume = Self {
            directory,
            freezing: None,
        };
        let at = &volume.directory;
        if !can_be_slow() {
            let options = format!("size={SIZE},mode=700");
            run(Command::new("mount")
                .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
                .arg(at))?;
            return Ok(volume);
        }
        let name = at.to_string_lossy().replace('/', "-");
        let image = images.directory.join(name);
        File::create_new(&image)?.set_len(SIZE)?;
        // Without reserved blocks, because agents of the run are root.
        run(Command::new("mkfs.ext4")
            .args(["-q", "-m", "0"])
            .arg(&image))?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(at))?;
        std::fs::remove_dir(at.join("lost+found"))?;
        std::fs::set_permissions(at, Permissions::from_mode(0o700))?;
        Ok(volume)
    }

    /// Writes until the disk is full.
    pub(crate) fn fill(&self) -> anyhow::Result<()> {
        let mut file = File::create(self.directory.join(FILLER)).context("a filler")?;
        let chunk = vec![1; 64 << 10];
        loop {
            match file.write_all(&chunk) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error).context("fill a disk"),
            }
        }
    }

    /// Frees the disk again.
    pub(crate) fn free(&self) {
        // A disk without the file is free already.
        let _ = std::fs::remove_file(self.directory.join(FILLER));
    }

    /// Blocks all writes for some time, again and again. Reads continue.
    pub(crate) fn slow_down(&mut self, slowness: Slowness) -> anyhow::Result<()> {
        if !can_be_slow() {
            return Ok(());
        }
        let (frozen, thawed) = match slowness {
            Slowness::Hanging => ("5", "0.2"),
            Slowness::Slow => ("0.4", "0.05"),
        };
        let child = Command::new("sh")
            .args(["-c", FREEZE])
            .env("DIRECTORY", &self.directory)
            .env("TIMES", TIMES)
            .env("FROZEN", frozen)
            .env("THAWED", thawed)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.freezing = Some(child.context("sh runs")?);
        Ok(())
    }

    /// Thaws the disk.
    pub(crate) fn speed_up(&mut self) {
        if let Some(mut child) = self.freezing.take() {
            let pid = i32::try_from(child.id()).expect("a process id");
            // It may have exited by itself.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            child.wait().expect("our child");
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.speed_up();
        unmount(&self.directory);
    }
}

/// Returns true if file systems can be frozen, which only root can do.
pub(crate) fn can_be_slow() -> bool {
    network::is_privileged()
}

/// A directory in memory for the images of file systems, because other programs slow down real disks.
pub(crate) struct Images {
    directory: PathBuf,
}

impl Images {
    /// Mounts the directory.
    pub(crate) fn mount(directory: PathBuf) -> anyhow::Result<Self> {
        std::fs::create_dir(&directory)?;
        run(Command::new("mount")
            .args(["-t", "tmpfs", "tmpfs"])
            .arg(&directory))?;
        Ok(Self { directory })
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        unmount(&self.directory);
    }
}

/// Processes may still use it.
fn unmount(directory: &Path) {
    let unmounted = Command::new("umount").arg("-l").arg(directory).status();
    unmounted.expect("umount runs");
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
