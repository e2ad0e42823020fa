//! Canonicalizes request paths as Envoy does before it matches routes.
//!
//! Envoy uses Chromium's code (`url_canon_path.cc`) for `/%2e%2E/`, `\` and broken escapes. Other
//! escapes keep the client's letter case, so routes must match both cases (RFC 3986 6.2.2.1).

use std::borrow::Cow;

use crate::expressions::quote;

/// Resolves `.` and `..`, and normalizes escapes. Returns `None` if the path contains an escaped
/// NUL.
pub fn collapse_dots(path: &str) -> Option<String> {
    let bytes = path.as_bytes();
    let mut out: Vec<u8> = Vec::with_capacity(bytes.len());
    if !bytes.first().is_some_and(|first| is_slash(*first)) {
        out.push(b'/');
    }
    let mut at = 0;
    // Position of the last `%` that does not start an escape.
    let mut stray = None;
    while let Some(&byte) = bytes.get(at) {
        let dot = dot_length(bytes, at);
        if dot > 0 {
            at += dot;
            match after_dot(bytes, at).filter(|_| out.last() == Some(&b'/')) {
                None => out.push(b'.'),
                Some((consumed, up)) => {
                    at += consumed;
                    if up {
                        back_up(&mut out);
                    }
                }
            }
            continue;
        }
        at += 1;
        match byte {
            b'\\' => out.push(b'/'),
            b'%' => match escaped(bytes, at) {
                Some(0) => return None,
                Some(value) if is_unreserved(value) => {
                    out.push(value);
                    at += 2;
                    if let Some(stray) = stray {
                        escape_stray(&mut out, stray, bytes.get(at).copied());
                    }
                }
                Some(_) => out.push(b'%'),
                None => {
                    stray = Some(out.len());
                    out.push(b'%');
                }
            },
            _ if must_be_escaped(byte) => out.extend(format!("%{byte:02X}").bytes()),
            _ => out.push(byte),
        }
    }
    // Only ASCII is left, because all other bytes have been escaped.
    String::from_utf8(out).ok()
}

/// Escapes a stray `%` if it would form an escape with the unescaped characters after it.
fn escape_stray(out: &mut Vec<u8>, stray: usize, next: Option<u8>) {
    let mut behind = out.get(stray + 1..).unwrap_or_default().to_vec();
    if behind.len() == 1 {
        behind.extend(next);
    }
    if behind.len() == 2 && escaped(&behind, 0).is_some() {
        out.splice(stray..=stray, *b"%25");
    }
}

fn dot_length(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at..) {
        Some([b'.', ..]) => 1,
        Some([b'%', b'2', b'e' | b'E', ..]) => 3,
        _ => 0,
    }
}

/// Returns the number of remaining bytes in a `.` or `..` segment, and true for `..`.
fn after_dot(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    let ends = |at: usize| match bytes.get(at) {
        None => Some(0),
        Some(byte) => is_slash(*byte).then_some(1),
    };
    if let Some(slash) = ends(at) {
        return Some((slash, false));
    }
    let second = dot_length(bytes, at);
    let slash = ends(at + second).filter(|_| second > 0)?;
    Some((second + slash, true))
}

fn back_up(out: &mut Vec<u8>) {
    if out.len() > 1 {
        out.pop();
        while out.len() > 1 && out.last() != Some(&b'/') {
            out.pop();
        }
    }
}

/// Returns the byte that two hexadecimal digits at `at` describe.
pub fn escaped(bytes: &[u8], at: usize) -> Option<u8> {
    let digits = bytes.get(at..at + 2)?;
    let digits = str::from_utf8(digits).ok()?;
    let hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| hex)
}

fn is_slash(byte: u8) -> bool {
    matches!(byte, b'/' | b'\\')
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~')
}

fn must_be_escaped(byte: u8) -> bool {
    !byte.is_ascii_graphic()
        || matches!(
            byte,
            b'"' | b'#' | b'<' | b'>' | b'?' | b'^' | b'`' | b'{' | b'|' | b'}'
        )
}

/// Returns the path with upper-case hex digits in escapes.
pub fn upper_escapes(path: &str) -> Cow<'_, str> {
    let mut parts = path.split('%');
    let first = parts.next().unwrap_or_default();
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut upper = first.to_owned();
    for part in parts {
        upper.push('%');
        match part.split_at_checked(2) {
            Some((digits, rest)) if is_escape(digits) => {
                upper.push_str(&digits.to_ascii_uppercase());
                upper.push_str(rest);
            }
            _ => upper.push_str(part),
        }
    }
    Cow::Owned(upper)
}

/// Maximum path length in bytes. The regular expression for a longer path would be too long.
const LONGEST: usize = 4096;

/// Returns a regular expression that matches escapes in either case, or `None` if no escape
/// contains a letter or the path is too long.
pub fn in_either_case(path: &str) -> Option<String> {
    if path.len() > LONGEST {
        return None;
    }
    let mut parts = path.split('%');
    let mut pattern = quote(parts.next().unwrap_or_default());
    let mut has_letter = false;
    for part in parts {
        pattern.push('%');
        let (digits, rest) = part
            .split_at_checked(2)
            .filter(|(digits, _)| is_escape(digits))
            .unwrap_or(("", part));
        for digit in digits.chars() {
            if digit.is_ascii_alphabetic() {
                has_letter = true;
                pattern.push('[');
                pattern.push(digit.to_ascii_uppercase());
                pattern.push(digit.to_ascii_lowercase());
                pattern.push(']');
            } else {
                pattern.push(digit);
            }
        }
        pattern.push_str(&quote(rest));
    }
    has_letter.then_some(pattern)
}

/// Returns the first escape that cannot occur in a canonical path, because Envoy unescapes it or
/// rejects the request.
pub fn never_escaped(text: &str) -> Option<&str> {
    let escapes = text.match_indices('%');
    let mut escapes = escapes.filter_map(|(at, _)| text.get(at..at + 3));
    escapes.find(|escape| {
        let value = escaped(escape.as_bytes(), 1);
        value.is_some_and(|value| value == 0 || value == b'.' || is_unreserved(value))
    })
}

fn is_escape(digits: &str) -> bool {
    escaped(digits.as_bytes(), 0).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_compared_in_either_case() {
        for (path, upper, pattern) in [
            (
                "/caf%c3%A9/x.y",
                "/caf%C3%A9/x.y",
                Some(r"/caf%[Cc]3%[Aa]9/x\.y"),
            ),
            ("/a%20b", "/a%20b", None),
            ("/plain", "/plain", None),
            ("/%e", "/%e", None),
            ("/%zz%ee", "/%zz%EE", Some("/%zz%[Ee][Ee]")),
        ] {
            assert_eq!(upper_escapes(path), upper);
            assert_eq!(in_either_case(path).as_deref(), pattern, "{path}");
        }
    }

    #[test]
    fn noncanonical_escapes_are_found() {
        for (text, escape) in [
            ("/%7Ealice", Some("%7E")),
            ("/a%2db", Some("%2d")),
            ("/x/%2e%2e/", Some("%2e")),
            ("/%41", Some("%41")),
            ("/%00", Some("%00")),
            ("/caf%C3%A9%20%21", None),
            ("/%", None),
        ] {
            assert_eq!(never_escaped(text), escape, "{text}");
        }
    }
}
