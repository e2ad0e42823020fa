//! Options for sealing private keys on disk, and the command `sesame-agent seal-key`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum as _};

use super::settings::LoadedSettings;
use sesame_sources::seal::{SealMethod, SealSettings, make_credential};

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Private keys at rest")]
pub(crate) struct SealArgs {
    /// How to seal private keys in the state directory: with systemd-creds if that works, else with
    /// a key file; with only one of the two; or not at all.
    #[arg(long, env = "SESAME_SEAL", value_enum, default_value_t)]
    seal: SealMethod,
    /// Directory for the sealing key, which may be on a different disk from the state directory; by
    /// default `seal` in the state directory.
    #[arg(long, env = "SESAME_SEAL_DIR", value_name = "DIR")]
    seal_dir: Option<PathBuf>,
}

impl SealArgs {
    pub(super) fn settings(&self, state_dir: &Path) -> SealSettings {
        SealSettings {
            method: self.seal,
            directory: self
                .seal_dir
                .clone()
                .unwrap_or_else(|| state_dir.join("seal")),
        }
    }
}

/// Like [`SealArgs`], for commands that store data for the agent. Unset options default to the
/// settings file.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Private keys at rest")]
pub(crate) struct SealLikeAgentArgs {
    /// How the agent seals private keys; defaults to the value in the settings file.
    #[arg(long, env = "SESAME_SEAL", value_enum)]
    seal: Option<SealMethod>,
    /// Directory for the agent's sealing key; defaults to the value in the settings file, or else
    /// to `seal` in the state directory.
    #[arg(long, env = "SESAME_SEAL_DIR", value_name = "DIR")]
    seal_dir: Option<PathBuf>,
}

impl SealLikeAgentArgs {
    pub(super) fn settings(&self, loaded: &LoadedSettings, state_dir: &Path) -> SealSettings {
        let in_file = |key: &str| {
            let entry = loaded.accepted.iter().find(|entry| entry.key == key);
            entry.and_then(|entry| entry.arguments.last()?.strip_prefix(&format!("--{key}=")))
        };
        let method = || SealMethod::from_str(in_file("seal")?, false).ok();
        let directory = || in_file("seal-dir").map(PathBuf::from);
        let args = SealArgs {
            seal: self.seal.or_else(method).unwrap_or_default(),
            seal_dir: self.seal_dir.clone().or_else(directory),
        };
        args.settings(state_dir)
    }
}

#[cfg(feature = "cluster")]
pub(super) fn options(settings: &SealSettings) -> [String; 4] {
    let SealSettings { method, directory } = settings;
    let method = method.to_possible_value();
    let method = method.map_or_else(String::new, |value| value.get_name().to_owned());
    let directory = directory.to_string_lossy().into_owned();
    [
        "--seal".to_owned(),
        method,
        "--seal-dir".to_owned(),
        directory,
    ]
}

#[derive(Debug, Args)]
pub(crate) struct SealKeyArgs {
    /// File to write, which must not exist. A unit loads it with
    /// `LoadCredentialEncrypted=sesame-seal-key`.
    #[arg(
        default_value = "/etc/credstore.encrypted/sesame-seal-key",
        value_name = "FILE"
    )]
    file: PathBuf,
}

pub(crate) fn main(args: &SealKeyArgs) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let made = runtime.block_on(make_credential(&args.file));
    made.map_err(anyhow::Error::msg)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::settings;
    use super::*;

    #[test]
    fn seal_options_default_to_settings_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent.yaml");
        let state = Path::new("/state");
        let none = SealLikeAgentArgs {
            seal: None,
            seal_dir: None,
        };
        let explicit = SealLikeAgentArgs {
            seal: Some(SealMethod::Auto),
            seal_dir: Some("/said".into()),
        };
        for (text, method, directory) in [
            ("", SealMethod::Auto, "/state/seal"),
            ("seal: off\n", SealMethod::Off, "/state/seal"),
            ("seal: \"off\"\nseal-dir: /k\n", SealMethod::Off, "/k"),
            ("seal: key-file\n", SealMethod::KeyFile, "/state/seal"),
            ("seal: nonsense\n", SealMethod::Auto, "/state/seal"),
        ] {
            fs::write(&file, text).unwrap();
            let loaded = settings::read(&file, true);
            let found = none.settings(&loaded, state);
            assert_eq!(found.method, method, "{text}");
            assert_eq!(found.directory, Path::new(directory), "{text}");
            let found = explicit.settings(&loaded, state);
            assert_eq!(found.method, SealMethod::Auto, "{text}");
            assert_eq!(found.directory, Path::new("/said"), "{text}");
        }
    }
}
