//! Opens files and directories only if they can be trusted.
//!
//! A path may refer to a link, a pipe or a device, and may change at any time. Files are therefore
//! opened without blocking, and checked once they are open.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, StatVfsMountFlags};

const PIECE_BYTES: usize = 256 << 10;

/// Requirements for owner, mode and links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Written by this process: not a link, owned by this user or root, and not writable by others.
    Own,
    /// Named on the command line: like [`Rule::Own`], but links are followed.
    Named,
    /// In a watched directory: not a link, not world-writable, owned by any user.
    Given,
    /// Like [`Rule::Given`], but links are followed.
    GivenByLink,
    /// With verified signatures: not a link, but any user may write to it.
    Vouched,
}

/// Error for an unreadable or untrusted file or directory.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// I/O error.
    #[error("{path}: {source}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The path is a symbolic link.
    #[error("{path}: is a symbolic link, which is not followed; replace it with its target")]
    Link {
        /// File or directory.
        path: PathBuf,
    },
    /// Unexpected file type.
    #[error("{path}: is {found}, expected {expected}")]
    Type {
        /// File or directory.
        path: PathBuf,
        /// Actual type.
        found: &'static str,
        /// Expected type.
        expected: &'static str,
    },
    /// Another user owns the file.
    #[error(
        "{path}: belongs to user {owner}, who could change it at any time; check its content, \
        then run `chown {wanted} {path}`"
    )]
    Owner {
        /// File or directory.
        path: PathBuf,
        /// Actual owner.
        owner: u32,
        /// Expected owner.
        wanted: u32,
    },
    /// Other users can change the file.
    #[error(
        "{path}: {who} can write to it (mode {mode:04o}); check its content, then run `chmod \
        {change} {path}`"
    )]
    Mode {
        /// File or directory.
        path: PathBuf,
        /// Users who can write to the file.
        who: &'static str,
        /// Actual mode.
        mode: u32,
        /// Argument for `chmod` that corrects the mode.
        change: &'static str,
    },
    /// Exceeds the size limit.
    #[error("{path}: larger than {limit} bytes")]
    TooLarge {
        /// File or directory.
        path: PathBuf,
        /// Limit in bytes.
        limit: u64,
    },
}

impl OpenError {
    /// Returns true if the file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        let kind = match &error {
            OpenError::Io { source, .. } => source.kind(),
            OpenError::TooLarge { .. } => io::ErrorKind::FileTooLarge,
            _ => io::ErrorKind::PermissionDenied,
        };
        Self::new(kind, error)
    }
}

/// Reads a complete file of at most `limit` bytes.
pub fn read(path: &Path, rule: Rule, limit: u64) -> Result<Vec<u8>, OpenError> {
    let (file, metadata) = open(path, rule)?;
    let too_large = || OpenError::TooLarge {
        path: path.to_owned(),
        limit,
    };
    if metadata.len() > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1);
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|source| failed(path, source))?;
    // The file might have grown since its size was checked.
    if bytes.len() as u64 > limit {
        return Err(too_large());
    }
    Ok(bytes)
}

/// Passes the content of a file of any size to `take`, in pieces. `-` is standard input.
pub fn stream<E: From<OpenError>>(
    path: &Path,
    rule: Rule,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut source: Box<dyn io::Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(open(path, rule)?.0)
    };
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match source.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => take(piece.get(..count).unwrap_or_default())?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(path, error).into()),
        }
    }
}

/// Reads a complete file of UTF-8 text.
pub fn read_text(path: &Path, rule: Rule, limit: u64) -> Result<String, OpenError> {
    let bytes = read(path, rule, limit)?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let why = format!("is not UTF-8 text (at byte {at})");
        failed(path, io::Error::new(io::ErrorKind::InvalidData, why))
    })
}

/// Opens a file for reading, and returns it with its metadata.
pub fn open(path: &Path, rule: Rule) -> Result<(File, Metadata), OpenError> {
    open_with(OpenOptions::new().read(true), path, rule)
}

/// Opens a file with `options`, which must not truncate the file before it is checked.
pub fn open_with(
    options: &mut OpenOptions,
    path: &Path,
    rule: Rule,
) -> Result<(File, Metadata), OpenError> {
    let follows = matches!(rule, Rule::Named | Rule::GivenByLink);
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if !follows {
        flags |= OFlags::NOFOLLOW;
    }
    let opened = options.custom_flags(flags.bits().cast_signed()).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) => {
            // Report an unexpected file type, such as a link or a socket, instead of the I/O error.
            if let Ok(metadata) = fs::symlink_metadata(path)
                && (!follows || !metadata.is_symlink())
            {
                regular(path, &metadata)?;
            }
            return Err(failed(path, error));
        }
    };
    let metadata = file.metadata().map_err(|source| failed(path, source))?;
    regular(path, &metadata)?;
    check_permissions(path, &file, &metadata, rule)?;
    Ok((file, metadata))
}

/// Checks a directory's type, owner and mode.
pub fn check_directory(path: &Path, rule: Rule) -> Result<(), OpenError> {
    let mut flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if matches!(rule, Rule::Own | Rule::Given | Rule::Vouched) {
        flags |= OFlags::NOFOLLOW;
    }
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(flags.bits().cast_signed());
    let directory = match options.open(path) {
        Ok(directory) => directory,
        Err(source) => {
            return Err(match fs::symlink_metadata(path) {
                Ok(found) if found.is_symlink() && flags.contains(OFlags::NOFOLLOW) => {
                    OpenError::Link {
                        path: path.to_owned(),
                    }
                }
                Ok(found) if !found.is_dir() && !found.is_symlink() => OpenError::Type {
                    path: path.to_owned(),
                    found: kind(&found),
                    expected: "a directory",
                },
                _ => failed(path, source),
            });
        }
    };
    let metadata = directory
        .metadata()
        .map_err(|source| failed(path, source))?;
    check_permissions(path, &directory, &metadata, rule)
}

fn regular(path: &Path, metadata: &Metadata) -> Result<(), OpenError> {
    if metadata.is_symlink() {
        return Err(OpenError::Link {
            path: path.to_owned(),
        });
    }
    if metadata.is_file() {
        return Ok(());
    }
    Err(OpenError::Type {
        path: path.to_owned(),
        found: kind(metadata),
        expected: "a regular file",
    })
}

fn kind(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    if kind.is_file() {
        "a file"
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a fifo"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

fn check_permissions(
    path: &Path,
    file: &File,
    metadata: &Metadata,
    rule: Rule,
) -> Result<(), OpenError> {
    let mode = metadata.mode() & 0o7777;
    let refused = |who, change| OpenError::Mode {
        path: path.to_owned(),
        who,
        mode,
        change,
    };
    match rule {
        Rule::Own | Rule::Named => {
            let wanted = rustix::process::geteuid().as_raw();
            if metadata.uid() != wanted && metadata.uid() != 0 {
                return Err(OpenError::Owner {
                    path: path.to_owned(),
                    owner: metadata.uid(),
                    wanted,
                });
            }
            match mode & 0o022 {
                0 => Ok(()),
                0o020 => Err(refused("its group", "g-w")),
                _ => Err(refused("all users", "go-w")),
            }
        }
        // The root of a Kubernetes volume may be world-writable if the mount is read-only.
        Rule::Given | Rule::GivenByLink if mode & 0o002 != 0 && !is_read_only(file) => {
            Err(refused("all users", "o-w"))
        }
        Rule::Given | Rule::GivenByLink | Rule::Vouched => Ok(()),
    }
}

fn is_read_only(file: &File) -> bool {
    rustix::fs::fstatvfs(file).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn failed(path: &Path, source: io::Error) -> OpenError {
    OpenError::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const RULES: [Rule; 4] = [Rule::Own, Rule::Named, Rule::Given, Rule::GivenByLink];

    fn with_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn read_by(path: &Path) -> [bool; 4] {
        RULES.map(|rule| read(path, rule, 10).is_ok())
    }

    #[test]
    fn stream_passes_whole_file_in_pieces() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        let content = vec![b'x'; 2 * PIECE_BYTES + 1];
        fs::write(&file, &content).unwrap();
        let mut passed = Vec::new();
        let streamed = stream(&file, Rule::GivenByLink, |bytes| {
            passed.extend_from_slice(bytes);
            Ok::<(), OpenError>(())
        });
        streamed.unwrap();
        assert_eq!(passed, content);
        let directory = stream(root.path(), Rule::GivenByLink, |_| Ok::<(), OpenError>(()));
        assert!(matches!(directory, Err(OpenError::Type { .. })));
    }

    #[test]
    fn file_permissions_decide_acceptance() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "0123456789").unwrap();
        for (mode, expected) in [
            (0o600, [true; 4]),
            (0o644, [true; 4]),
            (0o664, [false, false, true, true]),
            (0o646, [false; 4]),
            (0o666, [false; 4]),
        ] {
            with_mode(&file, mode);
            assert_eq!(read_by(&file), expected, "{mode:o}");
        }
        with_mode(&file, 0o666);
        assert!(read(&file, Rule::Vouched, 10).is_ok());
        let error = read(&file, Rule::Own, 10).unwrap_err().to_string();
        assert!(
            error.contains(
                "all users can write to it (mode 0666); check its content, then run `chmod go-w "
            ),
            "{error}"
        );
        with_mode(&file, 0o600);
        let error = read(&file, Rule::Own, 9).unwrap_err();
        assert!(
            matches!(error, OpenError::TooLarge { limit: 9, .. }),
            "{error}"
        );
        assert!(
            read(&root.path().join("none"), Rule::Own, 9)
                .unwrap_err()
                .is_not_found()
        );

        let link = root.path().join("link");
        symlink("file", &link).unwrap();
        assert_eq!(read_by(&link), [false, true, false, true]);
        assert!(read(&link, Rule::Vouched, 10).is_err());
        let error = read(&link, Rule::Own, 10).unwrap_err();
        assert!(matches!(error, OpenError::Link { .. }), "{error}");
    }

    #[test]
    fn directory_permissions_are_checked_too() {
        let root = tempfile::tempdir().unwrap();
        let judged = |path: &Path| RULES.map(|rule| check_directory(path, rule).is_ok());
        for (mode, expected) in [
            (0o700, [true; 4]),
            (0o770, [false, false, true, true]),
            (0o777, [false; 4]),
            (0o1777, [false; 4]),
        ] {
            with_mode(root.path(), mode);
            assert_eq!(judged(root.path()), expected, "{mode:o}");
        }
        with_mode(root.path(), 0o700);
        let (link, file) = (root.path().join("link"), root.path().join("file"));
        symlink(".", &link).unwrap();
        assert_eq!(judged(&link), [false, true, false, true]);
        fs::write(&file, "").unwrap();
        assert_eq!(judged(&file), [false; 4]);
        let error = check_directory(&file, Rule::Own).unwrap_err().to_string();
        assert!(
            error.ends_with("is a file, expected a directory"),
            "{error}"
        );
    }

    #[test]
    fn file_of_another_user_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        if std::os::unix::fs::chown(&file, Some(12345), None).is_err() {
            eprintln!("skipped: only root can give a file to another user");
            return;
        }
        assert_eq!(read_by(&file), [false, false, true, true]);
        let error = read(&file, Rule::Own, 10).unwrap_err().to_string();
        assert!(error.contains("belongs to user 12345"), "{error}");
    }

    #[test]
    fn special_files_are_refused_without_blocking() {
        let root = tempfile::tempdir().unwrap();
        let (fifo, socket) = (root.path().join("fifo"), root.path().join("socket"));
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, found) in [
            (fifo.as_path(), "a fifo"),
            (&socket, "a socket"),
            (root.path(), "a directory"),
            (Path::new("/dev/null"), "a device"),
        ] {
            for rule in RULES {
                let error = read(path, rule, 10).unwrap_err().to_string();
                assert!(error.contains(found), "{error}");
            }
            let write = open_with(OpenOptions::new().write(true), path, Rule::Own);
            assert!(write.is_err(), "{found}");
        }
    }
}
