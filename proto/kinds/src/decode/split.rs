//! Splits a file into documents.

/// A document in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    /// 1-based line in the file on which `text` starts.
    pub line: usize,
    /// Text between the markers.
    pub text: &'a str,
}

/// Splits a file into documents, and skips blank ones.
///
/// A marker is a line that starts with `---` or `...`, even inside a scalar (YAML 1.2 §9.1.2,
/// `c-forbidden`). Splitting before parsing prevents a malformed document from swallowing the next
/// one.
pub fn split(text: &str) -> Vec<Document<'_>> {
    let mut documents = Vec::new();
    let mut push = |line: usize, text| {
        if !is_blank(text) {
            documents.push(Document { line, text });
        }
    };
    let (mut start, mut start_line) = (0, 1);
    let (mut offset, mut number) = (0, 1);
    for line in text.split_inclusive('\n') {
        if let Some(after) = marker(line) {
            push(start_line, text.get(start..offset).unwrap_or_default());
            // Text after `---` belongs to the next document.
            start = offset + (line.len() - after.len());
            start_line = number;
        }
        offset += line.len();
        number += 1;
    }
    push(start_line, text.get(start..).unwrap_or_default());
    documents
}

/// Returns the text after the marker.
fn marker(line: &str) -> Option<&str> {
    let line = line.strip_prefix('\u{feff}').unwrap_or(line);
    let after = line
        .strip_prefix("---")
        .or_else(|| line.strip_prefix("..."))?;
    (after.is_empty() || after.starts_with([' ', '\t', '\r', '\n'])).then_some(after)
}

/// Comments and directives count as blank.
pub(super) fn is_blank(text: &str) -> bool {
    text.lines().all(is_blank_line)
}

/// Returns the 1-based number of the first line with content.
pub(super) fn first_line(text: &str) -> usize {
    text.lines()
        .position(|line| !is_blank_line(line))
        .map_or(1, |index| index + 1)
}

fn is_blank_line(line: &str) -> bool {
    let trimmed = line.trim_start_matches('\u{feff}').trim();
    trimmed.is_empty() || trimmed.starts_with('#') || line.starts_with('%')
}
