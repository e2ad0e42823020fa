//! Parses sizes in bytes with optional units `Ki`, `Mi` and `Gi` (powers of 1024).

pub(crate) fn read(
    field: &str,
    text: &str,
    allowed: std::ops::RangeInclusive<u64>,
) -> Result<u64, String> {
    let size = parse(text).filter(|size| allowed.contains(size));
    size.ok_or_else(|| {
        let (least, most) = allowed.into_inner();
        format!(
            "{field} {text:?}: expected {least} to {most} bytes, for instance \"64Ki\" or \"10Mi\""
        )
    })
}

fn parse(text: &str) -> Option<u64> {
    let is_canonical = !text.starts_with('0');
    with_unit(text, [("Ki", 10), ("Mi", 20), ("Gi", 30)]).filter(|_| is_canonical)
}

/// `units` maps units to base-2 exponents.
pub(crate) fn with_unit(text: &str, units: [(&str, u32); 3]) -> Option<u64> {
    let unit = units
        .into_iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (digits, shift) = unit.unwrap_or((text, 0));
    let is_number = digits.bytes().all(|it| it.is_ascii_digit());
    let number = Some(digits).filter(|_| is_number)?.parse::<u64>().ok()?;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        for (text, size) in [("1", 1), ("64Ki", 65_536), ("10Mi", 10_485_760)] {
            assert_eq!(read("size", text, 1..=1 << 30), Ok(size));
        }
        for text in [
            "",
            "0",
            "01",
            "1K",
            "1.5Mi",
            "-1",
            "Mi",
            "2Gi",
            "1Mi ",
            "99999999999Gi",
        ] {
            assert!(read("size", text, 1..=1 << 30).is_err(), "{text}");
        }
    }
}
