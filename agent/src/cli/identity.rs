//! `sesame-agent identity`: the key pair of this host.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::output::Format;
use crate::run::DEFAULT_STATE_DIR;
use crate::source::bundles::state::BundleState;

#[derive(Debug, Args)]
pub(crate) struct IdentityArgs {
    /// State directory of the agent, which keeps the private key. It is never printed.
    #[arg(long, env = "SESAME_STATE_DIR", default_value = DEFAULT_STATE_DIR, value_name = "DIR")]
    state_dir: PathBuf,
    /// Format of the answer.
    #[arg(long, short, default_value = "table")]
    output: Format,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct IdentityAnswer {
    public_key: String,
    /// True if it was made just now.
    created: bool,
}

pub(crate) fn main(args: &IdentityArgs) -> anyhow::Result<u8> {
    let (public_key, created) = BundleState::open(&args.state_dir)?.public_identity()?;
    let answer = IdentityAnswer {
        public_key,
        created,
    };
    args.output
        .write(&answer, || format!("{}\n", answer.public_key))?;
    Ok(0)
}
