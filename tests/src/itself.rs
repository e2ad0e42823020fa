//! Runs one test of the current executable in a new process.

use std::path::PathBuf;
use std::process::Command;

/// Returns the path of the current test executable.
pub fn executable() -> PathBuf {
    std::env::current_exe().expect("a test has a path")
}

/// Returns arguments that run only the test whose path ends with `test`. Panics unless exactly one
/// path matches.
pub fn only(test: &str) -> Vec<String> {
    let list = Command::new(executable())
        .args(["--list", "--format=terse"])
        .output()
        .expect("a test lists its tests");
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let paths = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let ends = |path: &&str| {
        let before = path.strip_suffix(test);
        before.is_some_and(|before| before.is_empty() || before.ends_with("::"))
    };
    let found: Vec<&str> = paths.filter(ends).collect();
    let [path] = found[..] else {
        panic!("expected one test named {test}, found {found:?}");
    };
    ["--exact", path, "--include-ignored", "--nocapture"]
        .map(str::to_owned)
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_found_by_its_last_names() {
        let name = "a_test_is_found_by_its_last_names";
        let path = &only(name)[1];
        assert_eq!(path, &format!("itself::tests::{name}"));
        assert_eq!(&only(&format!("tests::{name}"))[1], path);
        assert!(std::panic::catch_unwind(|| only("is_found_by_its_last_names")).is_err());
    }
}
