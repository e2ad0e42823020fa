//! Carries out what is safe to change: modes and directories of Sesame's own, and the sysctl file of its package.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown,
};
use std::path::Path;

use rustix::fs::OFlags;

use super::{HostFinding, HostFix};

/// Mends what can be mended. Returns a sentence for each change, or the reason why it was not made.
pub(crate) fn mend(findings: &[HostFinding]) -> Vec<Result<String, String>> {
    let mut fixes: Vec<&HostFix> = Vec::new();
    for fix in findings.iter().flat_map(|finding| &finding.fixes) {
        if !fixes.contains(&fix) {
            fixes.push(fix);
        }
    }
    fixes
        .into_iter()
        .map(|fix| one(fix).map_err(|(what, error)| format!("{what}: {error}")))
        .collect()
}

fn one(fix: &HostFix) -> Result<String, (String, io::Error)> {
    match fix {
        HostFix::CreateDirectory { path, owner } => {
            let made = DirBuilder::new().mode(0o700).create(path).and_then(|()| {
                let other = *owner != rustix::process::geteuid().as_raw();
                if other {
                    chown(path, Some(*owner), None)
                } else {
                    Ok(())
                }
            });
            made.map(|()| format!("{} was made", path.display()))
                .map_err(|error| (path.display().to_string(), error))
        }
        HostFix::SetMode { path, mode } => set_mode(path, *mode)
            .map(|()| format!("{} has mode {mode:04o} now", path.display()))
            .map_err(|error| (path.display().to_string(), error)),
        HostFix::LoadSysctl(file) => {
            load(file).map_err(|error| (file.display().to_string(), error))
        }
    }
}

/// Sets the mode of what was judged: not of something that a link leads to.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let before = fs::symlink_metadata(path)?;
    if !before.is_file() && !before.is_dir() {
        // A socket cannot be opened; its directory belongs to Sesame.
        if before.is_symlink() {
            return Err(io::Error::other("it has become a link"));
        }
        return fs::set_permissions(path, Permissions::from_mode(mode));
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let opened = file.metadata()?;
    if (opened.dev(), opened.ino()) != (before.dev(), before.ino()) {
        return Err(io::Error::other("it was replaced meanwhile"));
    }
    file.set_permissions(Permissions::from_mode(mode))
}

/// Writes the values of a sysctl file. A key that the kernel does not have is passed over, if the file says so with a dash.
fn load(file: &Path) -> io::Result<String> {
    let text = fs::read_to_string(file)?;
    let mut set = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        let (optional, key) = match key.strip_prefix('-') {
            Some(key) => (true, key),
            None => (false, key),
        };
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if key.is_empty() || !key.chars().all(known) || key.contains("..") {
            return Err(io::Error::other(format!("{key:?} is no sysctl")));
        }
        match fs::write(Path::new("/proc/sys").join(key.replace('.', "/")), value) {
            Ok(()) => set.push(format!("{key} = {value}")),
            Err(_) if optional => {}
            Err(error) => return Err(error),
        }
    }
    Ok(match set.as_slice() {
        [] => "nothing of it could be set here".to_owned(),
        set => set.join(", "),
    })
}
