//! The settings file of a host: the options of `run`, each under its own name, read before the command line is judged.
//!
//! The command line goes before variables, these before the file, and the file before defaults. There is no list of
//! settings beside the command line's own: a new option of `run` is a new setting.

pub(crate) mod arguments;
pub(crate) mod complete;
pub(crate) mod effective;
pub(crate) mod file;
pub(crate) mod reader;
#[cfg(test)]
mod reference;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory as _};
use sesame_files::open::{self, Rule};

use self::arguments::{AcceptedSetting, judge};
use self::file::{SettingFault, parse};
use super::Cli;

/// The settings file that is read if it exists and none is named.
pub(crate) const DEFAULT_CONFIG: &str = "/etc/sesame/agent.yaml";
/// Number of bytes that a settings file may have.
const MAX_BYTES: u64 = 64 << 10;

/// The option that names the file.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConfigArgs {
    /// File of settings: the options of `run` by name, as in `drain-seconds: 30`. Options and variables go before it.
    /// /etc/sesame/agent.yaml by default, if it exists.
    #[arg(
        long,
        global = true,
        env = "SESAME_CONFIG",
        value_name = "FILE",
        help_heading = "Settings"
    )]
    pub(crate) config: Option<PathBuf>,
    /// True if the command line, rather than a variable, names it.
    #[arg(skip)]
    pub(crate) named: bool,
}

/// A settings file as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadedSettings {
    /// The file; none if none was named and there is no default one.
    pub(crate) path: Option<PathBuf>,
    /// Entries that are valid.
    pub(crate) accepted: Vec<AcceptedSetting>,
    /// Everything that is wrong with the others, or with the file.
    pub(crate) faults: Vec<SettingFault>,
}

/// A settings file that cannot be used as it is.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.description())]
pub(crate) struct SettingsError {
    path: PathBuf,
    faults: Vec<SettingFault>,
}

impl SettingsError {
    fn description(&self) -> String {
        let lines = self.faults.iter().map(|fault| fault.at(&self.path));
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl SettingFault {
    /// Returns the fault with its place.
    pub(crate) fn at(&self, path: &Path) -> String {
        let Self { line, message } = self;
        match line {
            0 => message.clone(),
            line => format!("{}:{line}: {message}", path.display()),
        }
    }
}

impl LoadedSettings {
    /// Returns the faults as an error, if there are some.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        if self.faults.is_empty() {
            return Ok(());
        }
        Err(SettingsError {
            path: self.path.clone().unwrap_or_default(),
            faults: self.faults.clone(),
        })
    }
}

/// Reads the file that this command line, or a variable, names; else the default one, if it exists.
pub(crate) fn load(arguments: &[OsString]) -> LoadedSettings {
    // An Envoy waits for this one, and it has no settings.
    if arguments.get(1).map(OsString::as_os_str) == Some(OsStr::new("launch-envoy")) {
        return LoadedSettings::default();
    }
    let named = complete::look(&Cli::command(), arguments)
        .and_then(|found| found.get_one::<PathBuf>("config").cloned());
    match named {
        Some(path) => read(&path, true),
        None => read(Path::new(DEFAULT_CONFIG), false),
    }
}

/// Reads a file; one that does not exist is no fault, unless it was named.
pub(crate) fn read(path: &Path, named: bool) -> LoadedSettings {
    let refuse = |fault| LoadedSettings {
        path: Some(path.to_owned()),
        accepted: Vec::new(),
        faults: vec![fault],
    };
    // Whoever may write it decides what this host serves.
    let text = match open::read_text(path, Rule::Named, MAX_BYTES) {
        Ok(text) => text,
        Err(error) if error.is_not_found() && !named => return LoadedSettings::default(),
        Err(error) => {
            let message = error.to_string();
            return refuse(SettingFault { line: 0, message });
        }
    };
    match parse(&text) {
        Ok(entries) => {
            let (accepted, faults) = judge(&Cli::command(), &entries);
            LoadedSettings {
                path: Some(path.to_owned()),
                accepted,
                faults,
            }
        }
        Err(fault) => refuse(fault),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_that_others_may_write_is_refused_with_the_command_that_mends_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.yaml");
        std::fs::write(&path, "drain-seconds: 3\n").unwrap();
        for (mode, good) in [(0o644, true), (0o660, false), (0o646, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let loaded = read(&path, true);
            assert_eq!(loaded.faults.is_empty(), good, "{mode:o}: {loaded:?}");
            if !good {
                let error = loaded.check().unwrap_err().to_string();
                assert!(error.contains("chmod"), "{error}");
            }
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_a_fault_only_if_it_was_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.yaml");
        assert_eq!(read(&path, false), LoadedSettings::default());
        assert_eq!(read(&path, true).faults.len(), 1);
    }
}
