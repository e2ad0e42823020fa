//! Suggests the known field for a misspelled one.

/// Allows one edit per three letters of the known field: at least one edit, at most three.
pub(super) fn to(unknown: &str, known: &'static [&'static str]) -> Option<&'static str> {
    // Skip long names, because comparison time grows with both lengths. All known names are
    // shorter.
    if unknown.len() > 64 {
        return None;
    }
    let unknown = unknown.to_lowercase();
    known
        .iter()
        .map(|field| {
            let distance = strsim::damerau_levenshtein(&unknown, &field.to_lowercase());
            (distance, *field)
        })
        .filter(|(distance, field)| *distance <= (field.len() / 3).clamp(1, 3))
        .min()
        .map(|(_, field)| field)
}

#[cfg(test)]
mod tests {
    use super::to;

    #[test]
    fn typos_are_recognized_and_other_words_are_not() {
        const KNOWN: &[&str] = &[
            "name",
            "matches",
            "filters",
            "backendRefs",
            "tls",
            "timeouts",
        ];
        for (unknown, meant) in [
            ("backendRef", Some("backendRefs")),
            ("backendrefs", Some("backendRefs")),
            ("filtres", Some("filters")),
            ("match", Some("matches")),
            ("tsl", Some("tls")),
            ("nam", Some("name")),
            ("zone", None),
            ("retries", None),
            ("", None),
        ] {
            assert_eq!(to(unknown, KNOWN), meant, "{unknown}");
        }
        assert_eq!(to(&"x".repeat(100_000), KNOWN), None);
    }
}
