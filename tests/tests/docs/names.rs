//! The reference page about names must list exactly the labels, annotations and options that occur
//! in the sources.

use std::collections::BTreeSet;
use std::path::Path;

use sesame_tests::envoy::workspace;

use crate::pages::page;

const PREFIX: &str = "projectsesame.io/";

fn named(text: &str) -> impl Iterator<Item = String> {
    text.split(PREFIX).skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let name = &rest[..end.unwrap_or(rest.len())];
        (!name.is_empty()).then(|| format!("{PREFIX}{name}"))
    })
}

/// Ignores tests.
fn sources(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "tests" {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|end| end == "rs") && !name.ends_with("tests.rs") {
            let text = std::fs::read_to_string(&path).expect("a source");
            let before_tests = text.split("#[cfg(test)]").next().unwrap_or_default();
            let constants = before_tests
                .lines()
                .filter(|line| line.contains("const ") && line.contains('"'));
            found.extend(constants.flat_map(named));
        }
    }
}

#[test]
fn names_page_matches_sources() {
    let mut wanted = BTreeSet::new();
    for directory in [
        "agent",
        "controller",
        "proto/acme/src",
        "proto/kinds/src",
        "proto/published/src",
    ] {
        sources(&workspace().join(directory), &mut wanted);
    }
    let page = page("docs/reference/names.md");
    let items = page.text.lines().filter(|line| line.starts_with("- `"));
    let documented: BTreeSet<String> = items
        .flat_map(|item| named(item.split(" (").next().unwrap_or_default()))
        .collect();
    assert!(wanted.len() > 15, "{wanted:?}");
    let missing: Vec<&String> = wanted.difference(&documented).collect();
    assert!(
        missing.is_empty(),
        "docs/reference/names.md lacks {missing:?}"
    );
    let edge =
        std::fs::read_to_string(workspace().join("controller/resolver/src/settings/edge.rs"));
    let edge = edge.expect("a source");
    let policies = std::fs::read_to_string(
        workspace().join("controller/deploy/network-policies/policies.yaml"),
    );
    let policies: BTreeSet<String> = named(&policies.expect("a manifest")).collect();
    for name in documented.difference(&wanted) {
        let short = name.trim_start_matches(PREFIX);
        assert!(
            policies.contains(name) || edge.contains(&format!("\"{short}\"")),
            "no source has {name}"
        );
    }
}
