//! A wall clock that a test controls. It affects only processes that the test starts with it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/clock/clock.c");

/// A clock for processes that have the environment of [`Clock::variables`].
pub struct Clock {
    directory: TempDir,
    offset: File,
}

impl Clock {
    /// Creates a clock with the correct time. Requires a C compiler.
    pub fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("sesame-clock-")
            .tempdir()
            .expect("a directory");
        let library = directory.path().join("clock.so");
        let status = Command::new("cc")
            .args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(SOURCE)
            .status()
            .expect("cannot run `cc`; install a C compiler");
        assert!(status.success(), "{SOURCE} does not compile: {status}");
        let offset = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(offset_file(directory.path()))
            .expect("a file");
        let clock = Self { directory, offset };
        clock.set(0);
        clock
    }

    /// Sets the clock's offset from the correct time, in seconds.
    pub fn set(&self, seconds: i64) {
        // Running processes have mapped the file, so overwrite it in place.
        let bytes = seconds.to_ne_bytes();
        self.offset.write_all_at(&bytes, 0).expect("set the clock");
    }

    /// Returns environment variables that make a process use this clock.
    pub fn variables(&self) -> [(&'static str, PathBuf); 2] {
        let directory = self.directory.path();
        [
            ("LD_PRELOAD", directory.join("clock.so")),
            ("SESAME_CLOCK", offset_file(directory)),
        ]
    }

    /// Returns a prefix that makes a command use this clock.
    pub fn command(&self) -> Vec<String> {
        let variables = self.variables();
        let assigned = variables.map(|(name, value)| format!("{name}={}", value.display()));
        std::iter::once("env".to_owned()).chain(assigned).collect()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

fn offset_file(directory: &Path) -> PathBuf {
    directory.join("offset")
}
