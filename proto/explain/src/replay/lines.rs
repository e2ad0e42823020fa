//! Splits a log into parts that can be read independently, and recognizes HAR documents.

use super::har;
use super::logged::LoggedRequest;
use super::{ReplayError, json_lines, text_lines};

/// Maximum length of a line in bytes. Envoy and nginx limit requests to less by default.
pub(super) const MAX_LINE_BYTES: usize = 32 << 10;
/// Maximum size of a HAR document in bytes.
pub(super) const MAX_HAR_BYTES: usize = 256 << 20;
/// Maximum number of bytes before a HAR document's first key. The caller may pass more at once.
const MAX_START_BYTES: usize = 4096;

/// A request, `None` for a connection, or the reason why the entry is unreadable.
pub(super) type LoggedEntry = Result<Option<LoggedRequest>, &'static str>;

/// Part of a log that can be read without the rest.
#[derive(Debug)]
pub(super) enum LogPart {
    Lines {
        /// Number of the first line.
        first: u64,
        /// Whole lines. The last one may lack a newline.
        bytes: Vec<u8>,
    },
    Har(Vec<u8>),
}

impl LogPart {
    /// Calls `take` with each entry and its number: of the line, or of the HAR document's entry.
    pub(super) fn read<E: From<ReplayError>>(
        &self,
        mut take: impl FnMut(u64, LoggedEntry) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Lines { first, bytes } => {
                let lines = bytes.split_inclusive(|byte| *byte == b'\n');
                for (number, line) in (*first..).zip(lines) {
                    let line = line.strip_suffix(b"\n").unwrap_or(line);
                    if let Some(entry) = entry(line) {
                        take(number, entry)?;
                    }
                }
            }
            Self::Har(document) => {
                // The original error may contain a value.
                let requests = har::requests(document).map_err(|error| ReplayError::Har {
                    line: error.line(),
                    column: error.column(),
                })?;
                for (number, request) in (1_u64..).zip(requests) {
                    take(number, request.map(Some))?;
                }
            }
        }
        Ok(())
    }
}

/// Returns `None` for an empty line.
fn entry(line: &[u8]) -> Option<LoggedEntry> {
    if line.len() > MAX_LINE_BYTES {
        return Some(Err("the line is longer than 32768 bytes"));
    }
    let Ok(line) = std::str::from_utf8(line) else {
        return Some(Err("the line is not UTF-8 text"));
    };
    let line = line.strip_prefix('\u{feff}').unwrap_or(line).trim_ascii();
    Some(match line.as_bytes().first()? {
        b'{' => json_lines::read(line),
        b'[' => text_lines::envoy(line).map(Some),
        _ => text_lines::combined(line).map(Some),
    })
}

/// Splits bytes into parts of whole lines. Keeps only an incomplete line, or a HAR document.
#[derive(Debug)]
pub(super) struct LogSplitter {
    input: LogInput,
    /// Number of the next line.
    next: u64,
}

#[derive(Debug)]
enum LogInput {
    /// The first bytes, until the format is known.
    Start(Vec<u8>),
    /// The last line, which is incomplete. Longer lines are cut to one byte more than the maximum.
    Lines(Vec<u8>),
    Har(Vec<u8>),
}

impl Default for LogSplitter {
    fn default() -> Self {
        Self {
            input: LogInput::Start(Vec::new()),
            next: 1,
        }
    }
}

impl LogSplitter {
    /// Reads the next bytes. Returns the lines that are complete now.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Option<LogPart>, ReplayError> {
        match &mut self.input {
            LogInput::Start(start) => {
                start.extend_from_slice(bytes);
                let Some(har) = is_har(start) else {
                    return Ok(None);
                };
                let start = std::mem::take(start);
                self.input = if har {
                    LogInput::Har(Vec::new())
                } else {
                    LogInput::Lines(Vec::new())
                };
                self.push(&start)
            }
            LogInput::Lines(begun) => {
                let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
                    extend(begun, bytes);
                    return Ok(None);
                };
                let (whole, rest) = bytes.split_at(end + 1);
                let mut bytes = std::mem::take(begun);
                extend(begun, rest);
                bytes.extend_from_slice(whole);
                let first = self.next;
                let lines = whole.split_inclusive(|byte| *byte == b'\n').count();
                self.next += lines as u64;
                Ok(Some(LogPart::Lines { first, bytes }))
            }
            LogInput::Har(document) => {
                if document.len() + bytes.len() > MAX_HAR_BYTES {
                    return Err(ReplayError::TooLarge);
                }
                document.extend_from_slice(bytes);
                Ok(None)
            }
        }
    }

    /// Returns the last part, and true if the log is a HAR document.
    pub(super) fn finish(self) -> (LogPart, bool) {
        let first = self.next;
        match self.input {
            LogInput::Start(bytes) | LogInput::Lines(bytes) => {
                (LogPart::Lines { first, bytes }, false)
            }
            LogInput::Har(document) => (LogPart::Har(document), true),
        }
    }
}

/// Extends an incomplete line, but not beyond the length that makes it unreadable.
fn extend(begun: &mut Vec<u8>, bytes: &[u8]) {
    let room = (MAX_LINE_BYTES + 1).saturating_sub(begun.len());
    begun.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
}

/// Returns true for a HAR document, and `None` if more bytes are needed.
fn is_har(start: &[u8]) -> Option<bool> {
    // A line of Sesame's own log never begins with this field.
    const KEY: &[u8] = br#""log""#;
    if start.len() > MAX_START_BYTES {
        return Some(false);
    }
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    let (first, rest) = start.trim_ascii_start().split_first()?;
    let rest = rest.trim_ascii_start();
    if *first == b'{' && rest.len() < KEY.len() && KEY.starts_with(rest) {
        return None;
    }
    if *first != b'{' {
        return Some(false);
    }
    let Some(rest) = rest.strip_prefix(KEY) else {
        return Some(false);
    };
    // Container runtimes write lines whose `log` is text.
    let (mark, value) = rest.trim_ascii_start().split_first()?;
    if *mark != b':' {
        return Some(false);
    }
    Some(*value.trim_ascii_start().first()? == b'{')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns each line's number, and its length or `None` if it is too long.
    fn split(chunks: &[&[u8]]) -> Vec<(u64, Option<String>)> {
        let mut splitter = LogSplitter {
            input: LogInput::Lines(Vec::new()),
            next: 1,
        };
        let mut parts = Vec::new();
        for chunk in chunks {
            parts.extend(splitter.push(chunk).unwrap());
        }
        parts.push(splitter.finish().0);
        let mut lines = Vec::new();
        for part in parts {
            let LogPart::Lines { first, bytes } = part else {
                panic!("a HAR document");
            };
            for (number, line) in (first..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                let text = String::from_utf8_lossy(line).into_owned();
                lines.push((number, (line.len() <= MAX_LINE_BYTES).then_some(text)));
            }
        }
        lines
    }

    #[test]
    fn chunks_become_lines_and_long_lines_are_cut() {
        let text = |text: &str| Some(text.to_owned());
        assert!(split(&[]).is_empty());
        assert_eq!(
            split(&[b"a\nb", b"c\n", b"\n", b"d"]),
            [
                (1, text("a")),
                (2, text("bc")),
                (3, text("")),
                (4, text("d"))
            ]
        );
        let long = vec![b'x'; MAX_LINE_BYTES];
        assert_eq!(
            split(&[&long, b"x", b"y\nz\n", &long, b"x"]),
            [(1, None), (2, text("z")), (3, None)]
        );
        assert_eq!(
            split(&[&long, b"\n"])[0].1.as_deref().map(str::len),
            Some(MAX_LINE_BYTES)
        );
        let mut splitter = LogSplitter::default();
        for _ in 0..10 {
            assert!(splitter.push(&long).unwrap().is_none());
        }
        let (LogPart::Lines { bytes, .. }, false) = splitter.finish() else {
            panic!("lines");
        };
        assert_eq!(bytes.len(), MAX_LINE_BYTES + 1);
    }

    #[test]
    fn har_document_begins_with_log() {
        for (start, expected) in [
            ("", None),
            (" \n", None),
            ("{", None),
            ("{\n  \"lo", None),
            ("\u{feff}{ \"log\" : {", Some(true)),
            ("{\"log\":{", Some(true)),
            ("{\"log\" :", None),
            ("{\"log\":\"GET", Some(false)),
            ("{\"log\",", Some(false)),
            ("{\"logs\":", Some(false)),
            ("{}", Some(false)),
            ("{\"attempts\":1", Some(false)),
            ("[2026", Some(false)),
            ("\0", Some(false)),
        ] {
            assert_eq!(is_har(start.as_bytes()), expected, "{start:?}");
        }
        assert_eq!(is_har(&[b' '; MAX_START_BYTES + 1]), Some(false));
    }
}
