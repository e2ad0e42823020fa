//! `sesame-agent identity`: prints this host's public key, creating the key pair if it is missing.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::agent;
use super::output::Format;
use super::seal::SealLikeAgentArgs;
use super::settings::LoadedSettings;
use sesame_engine::DEFAULT_STATE_DIR;
use sesame_sources::bundles::state::BundleState;
use sesame_sources::seal::SealingKeys;

#[derive(Debug, Args)]
pub(crate) struct IdentityArgs {
    /// State directory of the agent.
    #[arg(long, env = "SESAME_STATE_DIR", default_value = DEFAULT_STATE_DIR, value_name = "DIR")]
    state_dir: PathBuf,
    #[command(flatten)]
    seal: SealLikeAgentArgs,
    /// Output format.
    #[arg(long, short, default_value = "table")]
    output: Format,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct IdentityAnswer {
    public_key: String,
    /// True if this call created the key pair, false if the key pair existed.
    created: bool,
}

pub(crate) fn main(args: &IdentityArgs, loaded: &LoadedSettings) -> anyhow::Result<u8> {
    let state = BundleState::open(&args.state_dir)?;
    let (public_key, created) = if let Some(public_key) = state.sealed_identity()? {
        (public_key, false)
    } else {
        // Seal the key as the agent would, because the agent will read it.
        let seal = args.seal.settings(loaded, &args.state_dir);
        let keys = agent::runtime()?.block_on(SealingKeys::prepare(&seal));
        let (identity, created) = state.sealed_with(keys.into()).create_identity()?;
        (identity.public().to_string(), created)
    };
    let answer = IdentityAnswer {
        public_key,
        created,
    };
    args.output
        .write(&answer, || format!("{}\n", answer.public_key))?;
    Ok(0)
}
