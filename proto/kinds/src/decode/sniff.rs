//! Guesses a block-style document's kind and name from its top-level lines, without parsing. The
//! caller must compare the guess with the parsed document.

/// A field is `None` if its value is missing or not a plain word.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sniffed<'a> {
    pub(super) api_version: Option<&'a str>,
    pub(super) kind: Option<&'a str>,
    pub(super) namespace: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    /// True if more than one top-level line looks like `kind`.
    pub(super) ambiguous: bool,
}

impl<'a> Sniffed<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let mut found = Self::default();
        // Indentation of `metadata`'s fields; 0 until the first field.
        let mut inside: Option<usize> = None;
        for line in text.lines() {
            let trimmed = line.trim_start_matches(' ');
            let indent = line.len() - trimmed.len();
            if trimmed.trim_end().is_empty() || trimmed.starts_with('#') {
                continue;
            }
            let Some((key, value)) = entry(trimmed) else {
                continue;
            };
            if indent == 0 {
                inside = None;
                match key {
                    "apiVersion" => set(&mut found.api_version, value),
                    "kind" => {
                        found.ambiguous |= found.kind.is_some();
                        set(&mut found.kind, value);
                    }
                    "metadata" if value.is_empty() => inside = Some(0),
                    _ => {}
                }
            } else if let Some(level) = &mut inside {
                if *level == 0 {
                    *level = indent;
                }
                if *level == indent {
                    match key {
                        "name" => set(&mut found.name, value),
                        "namespace" => set(&mut found.namespace, value),
                        _ => {}
                    }
                }
            }
        }
        found
    }
}

/// Used for documents whose kind is uncertain.
pub(super) fn may_be_secret(text: &str) -> bool {
    text.contains("Secret")
}

fn set<'a>(field: &mut Option<&'a str>, value: &'a str) {
    if field.is_none() {
        *field = word(value);
    }
}

fn entry(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    if !value.is_empty() && !value.starts_with([' ', '\t', '\r']) {
        return None;
    }
    let key = key.trim_end();
    let key = unquote(key).unwrap_or(key);
    let value = match value.split_once(" #") {
        Some((before, _)) => before,
        None => value,
    };
    Some((key, value.trim()))
}

/// Returns a plain or quoted scalar without escapes.
fn word(value: &str) -> Option<&str> {
    let value = unquote(value).unwrap_or(value);
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '/' | '_');
    (!value.is_empty() && value.chars().all(plain)).then_some(value)
}

fn unquote(text: &str) -> Option<&str> {
    ['"', '\'']
        .iter()
        .find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}
