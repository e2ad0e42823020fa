//! Finds programs that `make` builds from Go modules.

use std::path::PathBuf;

use crate::envoy::workspace;

/// Returns a program's path in the directory `$variable`, or else in `.tools/{directory}`. Panics
/// with `remedy` if the program is missing.
pub fn program(variable: &str, directory: &str, name: &str, remedy: &str) -> PathBuf {
    let given = std::env::var_os(variable).filter(|value| !value.is_empty());
    let directory = given.map_or_else(|| workspace().join(".tools").join(directory), PathBuf::from);
    let path = directory.join(name);
    assert!(
        path.is_file(),
        "{} does not exist: {remedy}",
        path.display()
    );
    path
}

/// Returns the version of a module in `go.mod`.
pub fn version(pins: &'static str, module: &str) -> &'static str {
    pins.lines()
        .filter(|line| !line.contains("=>"))
        .find_map(|line| line.trim().strip_prefix(module)?.strip_prefix(' '))
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap_or_else(|| panic!("go.mod does not require {module}"))
}
