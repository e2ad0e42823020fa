//! Judgement of whether the lines of a log can be read, or are text whose columns only their author knows. Pure.
//!
//! It must never take the one line that a power failure has cut off for a log in text.

use std::path::Path;

use super::LogEntry;

/// Number of consecutive non-JSON lines after which a log counts as text.
const FOREIGN: u64 = 3;

/// Statistics of the lines of one log so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readability {
    /// Lines since the last one that was an object.
    foreign: u64,
    /// True if one was an object.
    known: bool,
}

impl Readability {
    /// Notes a line, and what could be read of it.
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
                "{}: its lines are text, by spec.accessLog.format of a SesameConfiguration: they cannot be chosen or added up. \
                 `sesame-agent logs` without conditions prints them, `sesame-agent top --metrics` counts without them, and format type \
                 JSON lets both read them",
                file.display()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_is_no_log_in_text() {
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
