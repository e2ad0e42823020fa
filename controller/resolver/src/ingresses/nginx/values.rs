//! Parses ingress-nginx annotation values.

use sesame_proto::schema::MAX_BACKEND_MS;

use crate::syntax::sizes;

/// Accepts the same values as Go's `strconv.ParseBool`.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("{text:?}: expected true or false")),
    }
}

pub(super) fn number(text: &str, allowed: std::ops::RangeInclusive<u32>) -> Result<u32, String> {
    let read = text.parse::<u32>().ok().filter(|it| allowed.contains(it));
    read.ok_or_else(|| {
        let (least, most) = allowed.into_inner();
        format!("{text:?}: expected a number from {least} to {most}")
    })
}

/// Returns milliseconds.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    let most = u32::try_from(MAX_BACKEND_MS / 1_000).unwrap_or(u32::MAX);
    number(text, 1..=most).map(|seconds| u64::from(seconds) * 1_000)
}

/// Returns bytes; `k`, `m` or `g` may follow the number.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let size = sizes::with_unit(
        &text.to_ascii_lowercase(),
        [("k", 10), ("m", 20), ("g", 30)],
    );
    size.ok_or_else(|| format!("{text:?}: expected a size such as 8m"))
}

pub(super) fn list(text: &str) -> impl Iterator<Item = &str> {
    let values = text.split(',').map(str::trim);
    values.filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_nginx() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("512", Some(512)),
            ("8k", Some(8 << 10)),
            ("1M", Some(1 << 20)),
            ("2g", Some(2 << 30)),
            ("8mb", None),
            ("1.5m", None),
            ("-1", None),
            ("m", None),
            ("99999999999999999999", None),
            ("18446744073709551615g", None),
        ] {
            assert_eq!(size(text).ok(), bytes, "{text}");
        }
    }
}
