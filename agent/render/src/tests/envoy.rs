//! Validates bootstraps with a real Envoy.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

/// Prints a note once if neither `$ENVOY` nor `envoy` in `PATH` exists.
pub(crate) fn envoy() -> Option<PathBuf> {
    static REPORTED: Once = Once::new();
    let on_path = || {
        std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|directory| directory.join("envoy"))
            .find(|path| path.is_file())
    };
    let envoy = std::env::var_os("ENVOY").map(Into::into).or_else(on_path);
    if envoy.is_none() {
        REPORTED.call_once(|| {
            eprintln!("skipped: no Envoy; set ENVOY to its path, or put `envoy` on PATH");
        });
    }
    envoy
}

pub(crate) fn validate(envoy: &Path, suffix: &str, bootstrap: &[u8]) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(format!("bootstrap.{suffix}"));
    std::fs::write(&file, bootstrap).unwrap();
    let output = Command::new(envoy)
        .args([
            "--mode",
            "validate",
            "--disable-hot-restart",
            "-l",
            "warn",
            "-c",
        ])
        .arg(&file)
        .output()
        .unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
