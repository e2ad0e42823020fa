//! Reads Envoy's log, the only place where Envoy explains why it rejected a configuration.
//!
//! The log is a file, because a pipe would break if the agent crashed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sesame_files::open::{self, Rule};

/// Name of the log file in an Envoy's runtime directory.
pub const ENVOY_LOG: &str = "envoy.log";
/// Log format for Envoy. Example: `[2026-11-20T11:41:14.924][warning][config] text`.
pub const FORMAT: &str = "[%Y-%m-%dT%T.%e][%l][%n] %v";
/// Maximum log size in bytes. A larger log is copied to `<log>.1` and truncated.
const MAX_LOG: u64 = 16 << 20;
const MAX_READ: u64 = 256 << 10;
/// Maximum length of a message in characters.
const MAX_WORDS: usize = 2000;

/// Log file of one Envoy.
#[derive(Clone, Debug)]
pub struct EnvoyLog {
    path: PathBuf,
}

/// Position in the log file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(u64);

/// Log message about a rejected resource or file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// May be truncated. Never contains a private key.
    pub words: String,
    /// True if the message concerns a whole file.
    pub whole_file: bool,
}

impl EnvoyLog {
    /// Returns the log at this path, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the path of the log.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the log for an Envoy to append to.
    pub fn open_for_envoy(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let (file, _) = open::open_with(&mut options, &self.path, Rule::Own)?;
        Ok(file)
    }

    /// Returns the current end of the log.
    pub fn mark(&self) -> Mark {
        Mark(fs::metadata(&self.path).map_or(0, |meta| meta.len()))
    }

    /// Returns Envoy's messages about rejections since a mark.
    pub fn complaints_since(&self, mark: Mark) -> Vec<Complaint> {
        complaints(&self.text_since(mark))
    }

    /// Returns the critical and error lines since a mark, or the last lines if there are none.
    pub fn last_words(&self, mark: Mark) -> String {
        worst(&self.text_since(mark))
    }

    /// Copies a large log to `<log>.1` and truncates it in place, because Envoy has it open for
    /// appending.
    pub fn bound(&self) -> io::Result<()> {
        let len = match fs::metadata(&self.path) {
            Ok(meta) => meta.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if len <= MAX_LOG {
            return Ok(());
        }
        let mut old = self.path.clone().into_os_string();
        old.push(".1");
        fs::copy(&self.path, old)?;
        let (log, _) = open::open_with(OpenOptions::new().write(true), &self.path, Rule::Own)?;
        log.set_len(0)
    }

    fn text_since(&self, Mark(mark): Mark) -> String {
        let read = || -> io::Result<Vec<u8>> {
            let len = fs::metadata(&self.path)?.len();
            // A log that is shorter than the mark was truncated.
            let from = if len < mark { 0 } else { mark };
            let from = from.max(len.saturating_sub(MAX_READ));
            if from == len {
                return Ok(Vec::new());
            }
            let (mut file, _) = open::open(&self.path, Rule::Own)?;
            file.seek(SeekFrom::Start(from))?;
            let mut bytes = Vec::new();
            file.take(MAX_READ).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        // Ignore read errors. Envoy's counters still show that something was rejected.
        read().map_or_else(
            |_| String::new(),
            |b| String::from_utf8_lossy(&b).into_owned(),
        )
    }
}

pub(crate) fn worst(text: &str) -> String {
    let records = records(text);
    let mut worst: Vec<&str> = records
        .iter()
        .filter(|record| {
            ["][critical]", "][error]"]
                .iter()
                .any(|level| record.contains(level))
        })
        .map(|record| message(record))
        .collect();
    if worst.is_empty() {
        worst = records.iter().rev().take(3).map(|r| message(r)).collect();
        worst.reverse();
    }
    presentable(&worst.join("\n"))
}

/// Timestamps start with `[2`. Any other line continues the current record.
fn records(text: &str) -> Vec<String> {
    let mut records: Vec<String> = Vec::new();
    for line in text.lines() {
        match records.last_mut() {
            Some(record) if !line.starts_with("[2") => {
                record.push('\n');
                record.push_str(line);
            }
            _ => records.push(line.to_owned()),
        }
    }
    records
}

fn complaints(text: &str) -> Vec<Complaint> {
    let mut complaints: Vec<Complaint> = Vec::new();
    for record in records(text) {
        let whole_file = record.contains("Filesystem config update rejected:")
            || record.contains("Filesystem config update failure:");
        if !whole_file && !record.contains(" config rejected: ") {
            continue;
        }
        complaints.push(Complaint {
            words: presentable(message(&record)),
            whole_file,
        });
    }
    complaints
}

/// Strips `[time][level][logger]`.
fn message(record: &str) -> &str {
    let mut rest = record;
    for _ in 0..3 {
        rest = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
            Some((_, after)) => after,
            None => break,
        };
    }
    rest.trim()
}

fn presentable(text: &str) -> String {
    if text.contains("PRIVATE KEY") {
        return "(withheld: the message contains a private key)".to_owned();
    }
    if text.len() <= MAX_WORDS {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(MAX_WORDS).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const LOG: &str = "\
[2026-11-20T11:41:15.411][info][upstream] cds: response indicates 3 added/updated cluster(s)
[2026-11-20T11:41:15.412][warning][upstream] cds: cluster 'bad' config rejected: paths must refer
[2026-11-20T11:41:15.412][warning][config] Filesystem config update rejected: goo.gle/debugproto
name: \"x\"
: Proto constraint validation failed (x)
[2026-11-20T11:41:15.413][info][upstream] more
";

    #[test]
    fn refusals_are_found_with_their_continuation_lines() {
        let found = complaints(LOG);
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[0],
            Complaint {
                words: "cds: cluster 'bad' config rejected: paths must refer".to_owned(),
                whole_file: false,
            }
        );
        assert!(found[1].whole_file);
        assert!(
            found[1]
                .words
                .ends_with("\n: Proto constraint validation failed (x)")
        );
    }

    #[test]
    fn a_private_key_is_not_passed_on() {
        let text = "[2026-11-20T11:41:15.412][warning][config] Filesystem config update rejected: \
                    -----BEGIN PRIVATE KEY-----";
        assert!(!complaints(text)[0].words.contains("BEGIN"));
    }

    #[test]
    fn log_reads_only_after_mark_despite_truncation() {
        let directory = tempfile::tempdir().unwrap();
        let log = EnvoyLog::new(directory.path().join("envoy.log"));
        let mut file = log.open_for_envoy().unwrap();
        file.write_all(LOG.as_bytes()).unwrap();
        let mark = log.mark();
        assert!(log.complaints_since(mark).is_empty());
        file.write_all(LOG.as_bytes()).unwrap();
        assert_eq!(log.complaints_since(mark).len(), 2);
        file.set_len(0).unwrap();
        file.write_all(&LOG.as_bytes()[..230]).unwrap();
        assert_eq!(log.complaints_since(mark).len(), 1);
    }

    #[test]
    fn large_log_is_rotated_while_envoy_appends() {
        let directory = tempfile::tempdir().unwrap();
        let log = EnvoyLog::new(directory.path().join("envoy.log"));
        let mut file = log.open_for_envoy().unwrap();
        let chunk = vec![b'x'; 1 << 20];
        for _ in 0..17 {
            file.write_all(&chunk).unwrap();
        }
        log.bound().unwrap();
        assert_eq!(log.mark(), Mark(0));
        file.write_all(b"on").unwrap();
        assert_eq!(fs::read(log.path()).unwrap(), b"on");
    }
}
