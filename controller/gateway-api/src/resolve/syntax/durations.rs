//! Durations in the format of GEP-2257: one to four numbers of up to five digits with `h`, `m`, `s` or `ms`.

/// Parses a duration in milliseconds. The error names the expected form.
pub(crate) fn milliseconds(text: &str) -> Result<u64, String> {
    parse(text).ok_or_else(|| {
        format!("{text:?} is not a duration; expected for instance \"10s\", \"500ms\" or \"1h30m\"")
    })
}

/// Reads the duration in this field, if set.
pub(crate) fn read(field: &str, text: Option<&str>) -> Result<Option<u64>, String> {
    let read = text.map(milliseconds).transpose();
    read.map_err(|why| format!("{field}: {why}"))
}

fn parse(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total = 0_u64;
    for _ in 0..4 {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if !(1..=5).contains(&digits) {
            return None;
        }
        let (number, tail) = rest.split_at_checked(digits)?;
        let units = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
        let (unit, factor) = units.into_iter().find(|(unit, _)| tail.starts_with(unit))?;
        // At most 99,999 hours, so nothing overflows.
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        rest = tail.get(unit.len()..)?;
        if rest.is_empty() {
            return Some(total);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, expected) in [
            ("0s", Some(0)),
            ("1h30m", Some(5_400_000)),
            ("500ms", Some(500)),
            ("1m1m", Some(120_000)),
            ("99999h", Some(359_996_400_000)),
            ("1h1m1s1ms", Some(3_661_001)),
            ("", None),
            ("1", None),
            ("s", None),
            ("1.5s", None),
            ("-1s", None),
            ("100000s", None),
            ("1d", None),
            ("1s1s1s1s1s", None),
            ("1s ", None),
            ("1µs", None),
        ] {
            assert_eq!(milliseconds(text).ok(), expected, "{text:?}");
        }
    }
}
