//! Splits a log into lines, and recognizes HAR documents.

/// Maximum length of a line in bytes. Envoy and nginx limit requests to less by default.
pub(super) const MAX_LINE_BYTES: usize = 32 << 10;
/// Maximum size of a HAR document in bytes.
pub(super) const MAX_HAR_BYTES: usize = 256 << 20;
/// Maximum number of bytes before a HAR document's first key. The caller may pass more at once.
const MAX_START_BYTES: usize = 4096;

/// Splits bytes into lines. Keeps only an incomplete line.
#[derive(Debug, Default)]
pub(super) struct LineSplitter {
    begun: Vec<u8>,
    too_long: bool,
    number: u64,
}

impl LineSplitter {
    /// Calls `take` with the number of each complete line, and with its text, or `None` if it is
    /// too long.
    pub(super) fn push<E>(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(u64, Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            if self.begun.len() + text.len() > MAX_LINE_BYTES {
                self.too_long = true;
                self.begun.clear();
            } else if !self.too_long {
                self.begun.extend_from_slice(text);
            }
            if text.len() < part.len() {
                self.end_line(&mut take)?;
            }
        }
        Ok(())
    }

    /// The last line may lack a newline.
    pub(super) fn finish<E>(
        &mut self,
        take: impl FnMut(u64, Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.begun.is_empty() && !self.too_long {
            return Ok(());
        }
        self.end_line(take)
    }

    fn end_line<E>(
        &mut self,
        mut take: impl FnMut(u64, Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.number += 1;
        let too_long = std::mem::take(&mut self.too_long);
        let taken = take(self.number, (!too_long).then_some(self.begun.as_slice()));
        self.begun.clear();
        taken
    }
}

/// Returns true for a HAR document, and `None` if more bytes are needed.
pub(super) fn is_har(start: &[u8]) -> Option<bool> {
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
    Some(*first == b'{' && rest.starts_with(KEY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]]) -> Vec<(u64, Option<String>)> {
        let mut splitter = LineSplitter::default();
        let mut lines = Vec::new();
        let mut take = |number, line: Option<&[u8]>| {
            let line = line.map(|it| String::from_utf8_lossy(it).into_owned());
            lines.push((number, line));
            Ok::<(), ()>(())
        };
        for chunk in chunks {
            splitter.push(chunk, &mut take).unwrap();
        }
        splitter.finish(&mut take).unwrap();
        lines
    }

    #[test]
    fn chunks_become_lines_and_long_lines_are_dropped() {
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
