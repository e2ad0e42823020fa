//! Writes redacted, size-limited parts to a file that only this user can read.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use jiff::Timestamp;

use super::redact::Secrets;
use super::{ReportPart, ReportPartSummary};

/// Maximum size of a part in bytes. If a part is larger, only its end is kept.
const MAX_PART: usize = 16 << 20;
const MAX_ALL: usize = 128 << 20;
const TOP: &str = "sesame";
const CONTENTS: &str = "contents.json";

fn files(
    mut parts: Vec<ReportPart>,
    secrets: &Secrets,
) -> (Vec<(String, String)>, Vec<ReportPartSummary>) {
    parts.sort_by(|one, other| one.name.cmp(&other.name));
    let (mut files, mut contents, mut left) = (Vec::new(), Vec::new(), MAX_ALL);
    for ReportPart { name, content } in parts {
        let mut summary = ReportPartSummary {
            name: name.clone(),
            bytes: 0,
            left_out: 0,
            missing: None,
        };
        match content {
            Ok(text) => {
                // Redact before truncating, because a truncated secret would not be recognized.
                let text = secrets.redact(&text);
                let kept = end(&text, MAX_PART.min(left));
                left -= kept.len();
                summary.bytes = kept.len();
                summary.left_out = text.len() - kept.len();
                files.push((name, kept.to_owned()));
            }
            Err(why) => summary.missing = Some(secrets.redact(&why)),
        }
        contents.push(summary);
    }
    (files, contents)
}

fn end(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or_default()
}

/// Fails if the file exists.
pub(crate) fn write(
    path: &Path,
    parts: Vec<ReportPart>,
    secrets: &Secrets,
    now: Timestamp,
) -> io::Result<Vec<ReportPartSummary>> {
    let (mut files, contents) = files(parts, secrets);
    files.insert(
        0,
        (
            CONTENTS.to_owned(),
            serde_json::to_string_pretty(&contents)?,
        ),
    );
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let written = pack(file, &files, now);
    if let Err(error) = written {
        // Do not leave an incomplete archive behind. The caller reports the first error.
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(contents)
}

fn pack(file: fs::File, files: &[(String, String)], now: Timestamp) -> io::Result<()> {
    let compressed = zstd::stream::write::Encoder::new(file, 3)?;
    let mut archive = tar::Builder::new(compressed);
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(now.as_second()).unwrap_or(0));
        archive.append_data(&mut header, format!("{TOP}/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_in_order_redacted_bounded_and_listed() {
        let secrets = Secrets::new([b"very-secret".to_vec()]).unwrap();
        let part = |name: &str, content: Result<&str, &str>| ReportPart {
            name: name.to_owned(),
            content: content.map(str::to_owned).map_err(str::to_owned),
        };
        let long = "ä".repeat(MAX_PART);
        let parts = vec![
            part("z", Ok("a very-secret b")),
            part("b", Err("no very-secret there")),
            part("a", Ok(&long)),
        ];
        let (files, contents) = files(parts, &secrets);
        assert_eq!(files.len(), 2);
        assert_eq!((files[0].0.as_str(), files[0].1.len()), ("a", MAX_PART));
        assert_eq!(files[1], ("z".to_owned(), "a <redacted> b".to_owned()));
        let left_out: Vec<usize> = contents.iter().map(|part| part.left_out).collect();
        assert_eq!(left_out, [MAX_PART, 0, 0]);
        assert_eq!(contents[1].missing.as_deref(), Some("no <redacted> there"));
    }

    #[test]
    fn archive_is_private_and_never_overwrites() {
        use std::os::unix::fs::PermissionsExt as _;

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.tar.zst");
        let secrets = Secrets::new([]).unwrap();
        write(&path, Vec::new(), &secrets, Timestamp::UNIX_EPOCH).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        let again = write(&path, Vec::new(), &secrets, Timestamp::UNIX_EPOCH).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }
}
