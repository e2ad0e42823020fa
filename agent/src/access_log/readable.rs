//! Detects whether a log contains JSON lines, or lines in a custom text format that cannot be
//! parsed. Pure.
//!
//! A single line that was truncated by a power failure must not make a log count as text.

use std::path::Path;

use super::LogEntry;

/// Number of consecutive non-JSON lines after which a log counts as text.
const FOREIGN: u64 = 3;

/// Counts that show whether a log's lines are JSON objects.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readability {
    /// Number of lines since the last line that was a JSON object.
    foreign: u64,
    /// True if any line was a JSON object.
    known: bool,
}

impl Readability {
    /// Counts a line. `entry` is the parsed line, or `None` if it could not be parsed.
    pub(crate) fn note(&mut self, line: &str, entry: Option<&LogEntry>) {
        if entry.is_some() {
            self.foreign = 0;
            self.known = true;
        } else if !line.is_empty() {
            self.foreign += 1;
        }
    }

    /// Returns a message if the log's newest lines cannot be parsed.
    pub(crate) fn complaint(self, file: &Path) -> Option<String> {
        let is_text = self.foreign >= FOREIGN || (self.foreign > 0 && !self.known);
        is_text.then(|| {
            format!(
                "{}: its lines are text, set by spec.accessLog.format of a SesameConfiguration, so they cannot be filtered or counted. `sesame-agent logs` without filters prints them, `sesame-agent top --metrics` counts without them, and format type JSON lets both read them",
                file.display()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_line_does_not_count_as_text_log() {
        let complains = |lines: &[&str]| {
            let mut readability = Readability::default();
            for line in lines {
                readability.note(line, LogEntry::read(line).as_ref());
            }
            readability.complaint(Path::new("access.log")).is_some()
        };
        let (object, text) = ("{\"status\":200}", "200\tGET");
        assert!(!complains(&[]));
        assert!(!complains(&[object, "cut", object]));
        assert!(!complains(&[object, text]));
        assert!(complains(&[text]));
        assert!(complains(&[object, text, text, text]));
        assert!(!complains(&[text, text, text, object]));
    }
}
