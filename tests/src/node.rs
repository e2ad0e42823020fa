//! Packages from npm.

use std::path::PathBuf;

use serde_json::Value;

use crate::envoy::workspace;

/// Returns the installed packages of `tests/NAME`, of which `package` decides the version.
pub fn modules(name: &str, package: &str) -> PathBuf {
    let at = workspace().join(format!("tests/{name}/package.json"));
    let content = std::fs::read_to_string(at).expect("a package file");
    let content: Value = serde_json::from_str(&content).expect("valid JSON");
    let version = content["dependencies"][package].as_str();
    let version = version.expect("a version");
    let modules = workspace().join(format!(".tools/{name}-{version}/node_modules"));
    assert!(
        modules.is_dir(),
        "{} does not exist: run `make {name}`",
        modules.display()
    );
    modules
}
