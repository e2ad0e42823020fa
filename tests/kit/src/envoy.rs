//! Locates the Envoy binaries and the root of the source tree.

use std::path::{Path, PathBuf};

/// Returns `$ENVOY`, `envoy` from `PATH`, or the Envoy in `.tools`.
pub fn envoy_binary() -> PathBuf {
    if let Some(path) = std::env::var_os("ENVOY").filter(|value| !value.is_empty()) {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "$ENVOY is not a file: {}", path.display());
        return path;
    }
    on_path().or_else(fetched).expect(
        "Envoy not found: set $ENVOY to its binary, add `envoy` to $PATH, or run `make unit`",
    )
}

/// Returns `$OLDER_ENVOY`, or the oldest Envoy in `.tools`. Agents must support this version.
pub fn older_envoy_binary() -> PathBuf {
    let path = std::env::var_os("OLDER_ENVOY").filter(|value| !value.is_empty());
    let path = path
        .map(PathBuf::from)
        .or_else(|| in_tools().into_iter().next());
    let path = path.filter(|path| path.is_file());
    path.expect("older Envoy not found: set $OLDER_ENVOY to its binary, or run `make unit`")
}

/// Returns the root of the source tree.
pub fn workspace() -> PathBuf {
    let kit = Path::new(env!("CARGO_MANIFEST_DIR"));
    kit.ancestors()
        .nth(2)
        .expect("this crate is in the workspace")
        .to_path_buf()
}

fn on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join("envoy"))
        .find(|candidate| candidate.is_file())
}

fn fetched() -> Option<PathBuf> {
    in_tools().pop()
}

/// Returns the binaries, oldest version first.
fn in_tools() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(workspace().join(".tools"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("envoy-"))
        .map(|entry| entry.path().join("envoy"))
        .filter(|candidate| candidate.is_file())
        .collect();
    found.sort();
    found
}
