//! Generated files in the source tree. Tests compare them with the code, or write them with
//! `SESAME_REGENERATE=1`.

use crate::envoy::workspace;

/// Returns true if tests write generated files instead of comparing them.
pub fn is_requested() -> bool {
    std::env::var_os("SESAME_REGENERATE").is_some_and(|value| value == "1")
}

/// Compares a file with the output of `generate`, or writes it. `path` is relative to the source
/// root.
pub fn check(path: &str, generate: impl FnOnce(&str) -> String) {
    let file = workspace().join(path);
    let current = std::fs::read_to_string(&file).unwrap_or_default();
    let wanted = generate(&current);
    if current == wanted {
        return;
    }
    assert!(
        is_requested(),
        "{path} is out of date: run `make regenerate`"
    );
    std::fs::write(&file, wanted).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// Compares or replaces the text after `marker` in a file.
pub fn check_end(path: &str, marker: &str, end: &str) {
    check(path, |current| {
        let (start, _) = current
            .split_once(marker)
            .unwrap_or_else(|| panic!("{path} has no {marker:?}"));
        format!("{start}{marker}{end}")
    });
}
