//! Applies the safe fixes: modes and directories of Sesame, and the package's sysctl file.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use rustix::fs::{Mode, OFlags, mkdirat, openat};

use super::{HostFinding, HostFix};

/// Applies the fixes of all findings. Returns a sentence for each change made, or the reason why it
/// failed.
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
            let made = create_directory(path, *owner);
            made.map(|()| format!("{} was made", path.display()))
                .map_err(|error| (path.display().to_string(), error))
        }
        HostFix::SetMode { path, mode } => set_mode(path, *mode)
            .map(|()| format!("{} now has mode {mode:04o}", path.display()))
            .map_err(|error| (path.display().to_string(), error)),
        HostFix::LoadSysctl(file) => {
            load(file).map_err(|error| (file.display().to_string(), error))
        }
    }
}

/// Creates a directory with mode 0700 for its owner. Changes the owner by descriptor, so the owner
/// of the parent directory cannot substitute a link.
fn create_directory(path: &Path, owner: u32) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("expected the path of a directory"));
    };
    let above = File::open(above)?;
    mkdirat(&above, name, Mode::RWXU)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = File::from(openat(&above, name, flags, Mode::empty())?);
    let user = rustix::process::geteuid().as_raw();
    if made.metadata()?.uid() != user {
        return Err(io::Error::other("it was replaced after it was created"));
    }
    if owner == user {
        return Ok(());
    }
    fchown(&made, Some(owner), None)
}

/// Sets the mode of a file, directory or socket. Follows no symbolic link, and refuses files with
/// several hard links.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    // `O_PATH`, because a socket cannot be opened for reading.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(path)?;
    let found = file.metadata()?;
    if found.is_symlink() {
        return Err(io::Error::other("it is now a link"));
    }
    if !found.is_dir() && found.nlink() != 1 {
        return Err(io::Error::other("it has several hard links"));
    }
    // `fchmod` fails on an `O_PATH` descriptor, but `chmod` of its entry in `/proc` works.
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::set_permissions(opened, Permissions::from_mode(mode))
}

/// Writes the values of a sysctl file. Skips unknown keys that the file marks with a leading dash.
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
            return Err(io::Error::other(format!("{key:?} is not a sysctl")));
        }
        match fs::write(Path::new("/proc/sys").join(key.replace('.', "/")), value) {
            Ok(()) => set.push(format!("{key} = {value}")),
            Err(_) if optional => {}
            Err(error) => return Err(error),
        }
    }
    Ok(match set.as_slice() {
        [] => "none of its values could be set here".to_owned(),
        set => set.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn modes_are_set_behind_no_link() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::write(at("file"), "").unwrap();
        fs::set_permissions(at("file"), Permissions::from_mode(0o666)).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        symlink(at("file"), at("link")).unwrap();
        assert!(set_mode(&at("link"), 0o600).is_err());
        assert_eq!(mode(&at("file")), 0o666);
        fs::hard_link(at("file"), at("other")).unwrap();
        assert!(set_mode(&at("other"), 0o600).is_err());
        assert_eq!(mode(&at("file")), 0o666);
        fs::remove_file(at("other")).unwrap();
        for (name, wanted) in [("file", 0o600), ("socket", 0o660), ("directory", 0o700)] {
            set_mode(&at(name), wanted).unwrap();
            assert_eq!(mode(&at(name)), wanted, "{name}");
        }
    }

    #[test]
    fn directory_is_created_for_its_owner() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("state");
        let user = rustix::process::geteuid();
        // Only root may change the owner to another user.
        let owner = if user.is_root() { 4242 } else { user.as_raw() };
        create_directory(&path, owner).unwrap();
        assert_eq!(mode(&path), 0o700);
        assert_eq!(fs::metadata(&path).unwrap().uid(), owner);
        assert!(create_directory(&path, owner).is_err());
        let link = root.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(create_directory(&link, owner).is_err());
    }
}
