//! Checks that the book lists every page once, that every link resolves, and that task pages are
//! short.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use sesame_tests::envoy::workspace;

use crate::pages::{Page, all, below, page};

const SUMMARY: &str = "docs/SUMMARY.md";

fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                assert!(plain.pop(), "{}: leaves the workspace", path.display());
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// Returns `None` if the target exists.
fn fault(from: &Page, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() {
        from.path.clone()
    } else {
        plain(&from.path.parent().expect("a file").join(file))
    };
    if !workspace().join(&path).exists() {
        return Some(format!("{target}: missing file {}", path.display()));
    }
    if anchor.is_empty() {
        return None;
    }
    let to = page(path.to_str().expect("UTF-8"));
    let known = to.anchors();
    (!known.iter().any(|known| known == anchor)).then(|| {
        format!(
            "{target}: {} has only the anchors {known:?}",
            path.display()
        )
    })
}

#[test]
fn every_link_has_target() {
    let mut wrong = Vec::new();
    let mut links = 0;
    for page in all() {
        for (line, target) in page.links() {
            links += 1;
            let fault = fault(&page, &target);
            wrong.extend(fault.map(|why| format!("{}:{line}: {why}", page.path.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(links > 300, "{links} links were found");
}

#[test]
fn broken_link_is_reported() {
    let from = page("docs/security.md");
    for target in ["securty.md", "fleets.md#nothing", "#nothing", "../nothing"] {
        assert!(fault(&from, target).is_some(), "{target}");
    }
    assert_eq!(fault(&from, "fleets.md#use-the-pod-network"), None);
}

#[test]
fn every_page_is_in_the_summary_once() {
    let summary = page(SUMMARY);
    let mut listed = BTreeSet::new();
    for (_, target) in summary.links() {
        let path = Path::new("docs").join(target);
        assert!(listed.insert(path.clone()), "{}: twice", path.display());
    }
    let mut pages: BTreeSet<PathBuf> = all().into_iter().map(|page| page.path).collect();
    pages.retain(|path| path.starts_with("docs") && path != Path::new(SUMMARY));
    assert_eq!(listed, pages);
}

#[test]
fn task_pages_have_at_most_80_lines() {
    for page in below("docs/tasks") {
        let lines = page.text.lines().count();
        assert!(lines <= 80, "{} has {lines} lines", page.path.display());
    }
}
