//! Stores events on disk: one JSON object per line, in two files. Readers skip lines that are
//! truncated or were written by a newer agent.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sesame_files::open::{self, OpenError, Rule};

use super::HostEvent;
use sesame_host::written_by_agent;

const EVENTS: &str = "events.jsonl";
const OLDER: &str = "events.jsonl.1";
/// When `EVENTS` reaches this size, it replaces `OLDER`.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum number of bytes to read from each file.
const MAX_READ: u64 = 4 << 20;
const MODE: u32 = 0o600;

#[derive(Debug)]
pub(super) struct EventStore {
    directory: PathBuf,
}

impl EventStore {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// Returns the events, oldest first.
    pub(super) fn read(&self, rule: Rule) -> Result<Vec<HostEvent>, OpenError> {
        let mut events = Vec::new();
        for name in [OLDER, EVENTS] {
            let bytes = match open::read(&self.directory.join(name), rule, MAX_READ) {
                Ok(bytes) => bytes,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error),
            };
            let lines = bytes.split(|byte| *byte == b'\n');
            events.extend(lines.filter_map(|line| serde_json::from_slice::<HostEvent>(line).ok()));
        }
        Ok(events)
    }

    pub(super) fn append(&self, events: &[HostEvent]) -> io::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let path = self.directory.join(EVENTS);
        if fs::symlink_metadata(&path).is_ok_and(|meta| meta.len() >= MAX_BYTES) {
            fs::rename(&path, self.directory.join(OLDER))?;
        }
        // A crash may have truncated the last line.
        let mut lines = vec![b'\n'];
        for event in events {
            serde_json::to_writer(&mut lines, event)?;
            lines.push(b'\n');
        }
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(MODE);
        let (mut file, meta) = open::open_with(&mut options, &path, Rule::Own)?;
        let lines = if meta.len() == 0 { &lines[1..] } else { &lines };
        file.write_all(lines)
    }
}

/// Returns the events, oldest first.
pub fn list(state_dir: &Path) -> anyhow::Result<Vec<HostEvent>> {
    Ok(EventStore::new(state_dir).read(written_by_agent())?)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::HostEventKind;
    use super::*;

    fn event(number: u64, words: usize) -> HostEvent {
        HostEvent {
            number,
            time: Timestamp::UNIX_EPOCH,
            event: HostEventKind::SourceProblem,
            gateway: String::new(),
            about: "x".repeat(words),
            message: String::new(),
            ended: false,
        }
    }

    #[test]
    fn events_read_back_despite_truncated_line() {
        let root = tempfile::tempdir().unwrap();
        let store = EventStore::new(root.path());
        assert!(store.read(Rule::Own).unwrap().is_empty());
        store.append(&[event(1, 3)]).unwrap();
        let path = root.path().join(EVENTS);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"number\":2,\"ti").unwrap();
        store.append(&[event(3, 3)]).unwrap();
        assert_eq!(store.read(Rule::Own).unwrap(), [event(1, 3), event(3, 3)]);
    }

    #[test]
    fn two_files_are_kept() {
        let root = tempfile::tempdir().unwrap();
        let store = EventStore::new(root.path());
        for number in 0..9 {
            store.append(&[event(number, 500 << 10)]).unwrap();
        }
        let events = store.read(Rule::Own).unwrap();
        let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
        assert_eq!(numbers, [3, 4, 5, 6, 7, 8]);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2);
    }
}
