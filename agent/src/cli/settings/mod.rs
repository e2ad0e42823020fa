//! Loads a host's settings file, which sets options of `run` by name.
//!
//! Precedence, highest first: command line, environment variables, settings file, defaults. Every
//! option of `run` is also a setting.

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

pub(crate) const DEFAULT_CONFIG: &str = "/etc/sesame/agent.yaml";
const MAX_BYTES: u64 = 64 << 10;

/// Option for the settings file's path.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Settings file: the options of `run` by name, as in `drain-seconds: 30`. Command-line options
    /// and environment variables take precedence. The default is /etc/sesame/agent.yaml, if it
    /// exists.
    #[arg(
        long,
        global = true,
        env = "SESAME_CONFIG",
        value_name = "FILE",
        help_heading = "Settings"
    )]
    pub(crate) config: Option<PathBuf>,
    /// True if the file is given on the command line, not in an environment variable.
    #[arg(skip)]
    pub(crate) named: bool,
}

/// Content of a settings file, and the errors found in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadedSettings {
    /// Path of the file. `None` if no path is given and the default file does not exist.
    pub(crate) path: Option<PathBuf>,
    pub(crate) accepted: Vec<AcceptedSetting>,
    /// Errors in single entries or in the whole file.
    pub(crate) faults: Vec<SettingFault>,
}

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
    pub(crate) fn at(&self, path: &Path) -> String {
        let Self { line, message } = self;
        match line {
            0 => message.clone(),
            line => format!("{}:{line}: {message}", path.display()),
        }
    }
}

impl LoadedSettings {
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

pub(crate) fn load(arguments: &[OsString]) -> LoadedSettings {
    // `launch-envoy` has no settings, and reading the file would delay the start of Envoy.
    if arguments.get(1).map(OsString::as_os_str) == Some(OsStr::new("launch-envoy")) {
        return LoadedSettings::default();
    }
    let named = complete::parse_lenient(&Cli::command(), arguments)
        .and_then(|found| found.get_one::<PathBuf>("config").cloned());
    match named {
        Some(path) => read(&path, true),
        None => read(Path::new(DEFAULT_CONFIG), false),
    }
}

/// A missing file is an error only if `named` is set.
pub(crate) fn read(path: &Path, named: bool) -> LoadedSettings {
    let refuse = |fault| LoadedSettings {
        path: Some(path.to_owned()),
        accepted: Vec::new(),
        faults: vec![fault],
    };
    // Check the file's permissions, because anyone with write access controls what this host
    // serves.
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
    fn writable_settings_file_is_refused_with_chmod_hint() {
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
    fn missing_settings_file_is_fault_only_if_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.yaml");
        assert_eq!(read(&path, false), LoadedSettings::default());
        assert_eq!(read(&path, true).faults.len(), 1);
    }
}
