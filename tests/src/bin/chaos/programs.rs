//! The programs of both versions.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use sesame_tests::agent::beside_test;

/// The programs under test. Without an older version, upgrades install the current one again.
pub(crate) struct Programs {
    agent: PathBuf,
    controller: PathBuf,
    older: Option<PathBuf>,
}

impl Programs {
    /// Finds the programs. `older` is a directory with the older ones.
    pub(crate) fn find(older: Option<&Path>) -> anyhow::Result<Self> {
        let older = older.map(Path::canonicalize).transpose()?;
        let programs = Self {
            agent: beside_test("sesame-agent"),
            controller: beside_test("sesame-controller"),
            older,
        };
        for program in [programs.agent(true), programs.controller(true)] {
            ensure!(program.is_file(), "{} is not a file", program.display());
        }
        Ok(programs)
    }

    pub(crate) fn agent(&self, is_older: bool) -> PathBuf {
        self.one("sesame-agent", &self.agent, is_older)
    }

    pub(crate) fn controller(&self, is_older: bool) -> PathBuf {
        self.one("sesame-controller", &self.controller, is_older)
    }

    fn one(&self, name: &str, current: &Path, is_older: bool) -> PathBuf {
        let older = self.older.as_ref().filter(|_| is_older);
        older.map_or_else(|| current.to_owned(), |directory| directory.join(name))
    }
}
