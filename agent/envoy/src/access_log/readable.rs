//! Detects whether a log contains JSON or text in a custom format.
//!
//! A line truncated by a power failure must not make a JSON log count as text.

use std::path::Path;

use super::LogEntry;

const FOREIGN: u64 = 3;

/// Counts consecutive lines that are not JSON, to detect a custom text format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readability {
    foreign: u64,
    known: bool,
}

impl Readability {
    /// `entry` is `None` if parsing failed. Ignores empty lines.
    pub fn record(&mut self, line: &str, entry: Option<&LogEntry>) {
        if entry.is_some() {
            self.foreign = 0;
            self.known = true;
        } else if !line.is_empty() {
            self.foreign += 1;
        }
    }

    /// Returns a message with a remedy if the lines are text, or `None` otherwise.
    pub fn complaint(self, file: &Path) -> Option<String> {
        let is_text = self.foreign >= FOREIGN || (self.foreign > 0 && !self.known);
        is_text.then(|| {
            format!(
                "{}: its lines are text, because a SesameConfiguration sets spec.accessLog.format, so they cannot be filtered or counted. Use `sesame-agent logs` without filters, use `sesame-agent top --metrics`, or set the format type to JSON",
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
                readability.record(line, LogEntry::read(line).as_ref());
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
