//! Parses GEP-2257 durations (one to four numbers of at most five digits, each followed by `h`,
//! `m`, `s` or `ms`), and Go durations for Contour.

pub(crate) fn milliseconds(text: &str) -> Result<u64, String> {
    parse(text).ok_or_else(|| {
        format!(
            "{text:?} is not a duration; expected a value such as \"10s\", \"500ms\" or \"1h30m\""
        )
    })
}

/// Returns milliseconds. Errors start with `field`.
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
        // Four numbers of at most five digits cannot overflow.
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        rest = tail.get(unit.len()..)?;
        if rest.is_empty() {
            return Some(total);
        }
    }
    None
}

/// In nanoseconds. The order matters, because the first unit that matches is used.
const GO_UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Returns milliseconds, rounded up. Negative durations are invalid.
pub(crate) fn of_go(text: &str) -> Result<u64, String> {
    parse_go(text).ok_or_else(|| {
        format!(
            "{text:?} is not a duration; expected a value such as \"10s\", \"1.5h\" or \"1h30m\""
        )
    })
}

fn parse_go(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() || rest.len() > 64 {
        return None;
    }
    let mut nanoseconds = 0_u128;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at_checked(end)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() > 9 || fraction.len() > 9 || whole.len() + fraction.len() == 0 {
            return None;
        }
        let mut units = GO_UNITS.into_iter();
        let (unit, factor) = units.find(|(unit, _)| tail.starts_with(unit))?;
        // At most nine digits remain, so the product cannot overflow.
        let fraction = format!("{fraction:0<9}").parse::<u128>().ok()?;
        let whole = format!("0{whole}").parse::<u128>().ok()?;
        nanoseconds += whole * factor + fraction * factor / 1_000_000_000;
        rest = tail.get(unit.len()..)?;
    }
    u64::try_from(nanoseconds.div_ceil(1_000_000)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_go() {
        for (text, expected) in [
            ("0", Some(0)),
            ("+0", Some(0)),
            ("1.5h", Some(5_400_000)),
            (".5s", Some(500)),
            ("1m0.25s", Some(60_250)),
            ("500us", Some(1)),
            ("1µs", Some(1)),
            ("100000s", Some(100_000_000)),
            ("", None),
            ("1", None),
            (".s", None),
            ("1.1.1s", None),
            ("-1s", None),
            ("1d", None),
            ("1s ", None),
            ("9999999999h", None),
        ] {
            assert_eq!(of_go(text).ok(), expected, "{text:?}");
        }
    }

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
