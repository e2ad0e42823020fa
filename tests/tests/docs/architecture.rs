//! `ARCHITECTURE.md` fits on a page, and names only paths that exist.

use sesame_kit::envoy::workspace;

/// Only paths relative to the repository root are checked.
#[test]
fn architecture_is_short_and_paths_exist() {
    let root = workspace();
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("a page");
    assert!(
        text.lines().count() <= 120,
        "ARCHITECTURE.md has more than 120 lines"
    );
    let words = text.split('`').skip(1).step_by(2);
    let is_path = |word: &&str| {
        let top = word.split_once('/').map_or("", |(top, _)| top);
        root.join(top).is_dir() && !top.is_empty()
    };
    let missing: Vec<&str> = words
        .filter(is_path)
        .filter(|path| !root.join(path).exists())
        .collect();
    assert!(
        missing.is_empty(),
        "ARCHITECTURE.md names paths that do not exist: {missing:?}"
    );
}
