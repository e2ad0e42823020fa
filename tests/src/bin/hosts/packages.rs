//! The packages that hosts get, in two versions each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sesame_tests::agent::agent_binary;
use sesame_tests::envoy::{envoy_binary, workspace};

/// Packages of two versions, of the same programs.
pub(crate) struct Packages {
    first: PathBuf,
    second: PathBuf,
}

impl Packages {
    /// Builds them below a directory.
    pub(crate) fn build(directory: &Path) -> Self {
        println!("host: building packages");
        let [first, second] = ["1", "2"].map(|revision| {
            let out = directory.join(revision);
            build(&out, revision);
            out
        });
        Self { first, second }
    }

    /// The first version of both.
    pub(crate) fn first(&self) -> Vec<PathBuf> {
        debs(&self.first, "")
    }

    /// The second version of one.
    pub(crate) fn second(&self, name: &str) -> Vec<PathBuf> {
        debs(&self.second, name)
    }
}

/// Builds one version. Little is compressed: these live for minutes.
pub(crate) fn build(out: &Path, revision: &str) {
    let _ = fs::remove_dir_all(out);
    let built = Command::new(workspace().join("systemd/packages/build.sh"))
        .args([agent_binary(), envoy_binary()])
        .arg(out)
        .env("PACKAGE_REVISION", revision)
        .env("PACKAGE_LEVEL", "0")
        .stdout(Stdio::null())
        .status()
        .expect("the script runs");
    assert!(built.success(), "systemd/packages/build.sh: {built}");
}

/// The Debian packages in a directory whose names begin so.
pub(crate) fn debs(directory: &Path, name: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).expect("packages were built");
    let mut files: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| {
        let is_named = |file: &str| file.starts_with(name);
        file.extension().is_some_and(|end| end == "deb")
            && file
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(is_named)
    });
    files.sort();
    assert!(
        !files.is_empty(),
        "{}: no package {name}",
        directory.display()
    );
    files
}
