//! Reads the collector's headers from a private file. Never log headers or include them in errors.

use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use sesame_files::open::{self, Rule};

use crate::collector::CollectorError;

const MAX_FILE_BYTES: u64 = 64 << 10;
const MAX_HEADERS: usize = 32;
/// Headers that the file must not contain, because the exporter sets them.
const OURS: [&str; 7] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "te",
    "transfer-encoding",
];

/// Inode, size and modification time.
pub(crate) type FileStamp = (u64, u64, i64, i64);

pub(crate) fn stamp(path: &Path) -> Option<FileStamp> {
    let metadata = std::fs::metadata(path).ok()?;
    let (inode, size) = (metadata.ino(), metadata.size());
    Some((inode, size, metadata.mtime(), metadata.mtime_nsec()))
}

pub(crate) fn read(path: &Path) -> Result<HeaderMap, CollectorError> {
    let content = |reason: String| CollectorError::Content {
        path: path.to_owned(),
        reason,
    };
    let (file, metadata) = open::open(path, Rule::Named)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o007 != 0 {
        return Err(content(format!(
            "all users of this host can access this file (mode {mode:04o}); set its mode to 0600 \
            or 0640"
        )));
    }
    let mut text = String::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| content(error.to_string()))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(content(format!("larger than {MAX_FILE_BYTES} bytes")));
    }
    parse(&text).map_err(content)
}

/// Errors contain the line number, but never the line itself.
fn parse(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fault = |what: &str| format!("line {number}: {what}");
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| fault("expected `name: value`"))?;
        let name: HeaderName = name.trim().parse().map_err(|_| {
            fault("the name contains characters that are not allowed in a header name")
        })?;
        if OURS.contains(&name.as_str()) {
            return Err(fault("this header is set by Sesame itself; leave it out"));
        }
        let mut value: HeaderValue = value.trim().parse().map_err(|_| {
            fault("the value contains characters that are not allowed in a header value")
        })?;
        value.set_sensitive(true);
        headers.append(name, value);
        if headers.len() > MAX_HEADERS {
            return Err(format!("more than {MAX_HEADERS} headers"));
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    #[test]
    fn headers_need_private_file_and_stay_hidden() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("headers");
        fs::write(
            &path,
            "# of the account\nx-key: s3cret\n\nx-team: edge: one\n",
        )
        .unwrap();
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o644);
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("0644") && error.contains("0600"), "{error}");
        mode(0o600);
        let headers = read(&path).unwrap();
        assert_eq!(headers["x-key"], "s3cret");
        assert_eq!(headers["x-team"], "edge: one");
        assert!(!format!("{headers:?}").contains("s3cret"));
        for (bad, expected) in [
            ("s3cret", "line 1: expected `name: value`"),
            ("a: b\ns3 cret: x", "line 2: the name"),
            ("a: s3cret\u{1}", "line 1: the value"),
            ("Host: s3cret", "set by Sesame"),
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.contains(expected) && !error.contains("s3"), "{error}");
        }
    }
}
