//! Options for the sealing of private keys at rest, and `sesame-agent seal-key`.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::seal::{SealMethod, SealSettings, make_credential};

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Private keys at rest")]
pub(crate) struct SealArgs {
    /// Way in which private keys in the state directory are sealed: with a key that systemd-creds encrypts for this host where that
    /// works and else with a key file, with one of the two only, or not at all.
    #[arg(long, env = "SESAME_SEAL", value_enum, default_value_t)]
    seal: SealMethod,
    /// Directory of the sealing key, which may be on another disk than the state directory; by default `seal` in that.
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

#[derive(Debug, Args)]
pub(crate) struct SealKeyArgs {
    /// File to write, which must not exist. A unit loads it with `LoadCredentialEncrypted=sesame-seal-key`.
    #[arg(
        default_value = "/etc/credstore.encrypted/sesame-seal-key",
        value_name = "FILE"
    )]
    file: PathBuf,
}

/// Makes the key of a unit.
pub(crate) fn main(args: &SealKeyArgs) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let made = runtime.block_on(make_credential(&args.file));
    made.map_err(anyhow::Error::msg)?;
    Ok(0)
}
