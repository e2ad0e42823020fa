//! `sesame-agent store-credentials`: stores a host's credentials.
//!
//! `join` runs this command as the agent's user, which must own the files. Never prints a
//! credential, and reads credentials only from standard input.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use sesame_published::join_token::MAX_JOIN_TOKEN_BYTES;

use super::agent::{self, AgentArgs};
use super::seal::{SealLikeAgentArgs, options as seal_options};
use super::settings::LoadedSettings;
use sesame_sources::cluster::stored_token::StoredToken;
use sesame_sources::join::credentials::{self, Stored};
use sesame_sources::join::owner;
use sesame_sources::seal::{SealSettings, SealingKeys};

pub(super) struct CredentialStore<'a> {
    pub(super) owner: Option<owner::Owner>,
    pub(super) seal: SealSettings,
    pub(super) state: &'a Path,
    pub(super) runtime_dir: &'a Path,
}

impl CredentialStore<'_> {
    /// Fails if the sealing key is unusable.
    pub(super) fn prepare(&self) -> anyhow::Result<()> {
        match self.owner {
            None => store_sealed(&self.seal, self.state, self.runtime_dir, None),
            Some(owner) => self.run(owner, &["--only-seal-key"], b""),
        }
    }

    pub(super) fn store(&self, stored: &Stored) -> anyhow::Result<()> {
        match self.owner {
            None => store_sealed(&self.seal, self.state, self.runtime_dir, Some(stored)),
            Some(owner) => self.run(owner, &[], &serde_json::to_vec(stored)?),
        }
    }

    fn run(&self, owner: owner::Owner, more: &[&str], input: &[u8]) -> anyhow::Result<()> {
        let state = self.state.to_string_lossy();
        let seal = seal_options(&self.seal);
        let mut command = vec!["store-credentials", "--state-dir", &state];
        command.extend(seal.iter().map(String::as_str));
        command.extend(more);
        owner.run(&command, input).map(drop)
    }
}

/// If `stored` is `None`, creates and checks the sealing key without storing credentials.
fn store_sealed(
    seal: &SealSettings,
    state: &Path,
    runtime_dir: &Path,
    stored: Option<&Stored>,
) -> anyhow::Result<()> {
    let keys = agent::runtime()?.block_on(SealingKeys::prepare(seal));
    let sealed = StoredToken::of_command(runtime_dir, keys.into());
    match stored {
        None => sealed.check().map_err(anyhow::Error::msg),
        Some(stored) => credentials::store(state, stored, &sealed),
    }
    .with_context(|| format!("--state-dir {}", state.display()))
}

/// Stores credentials read from standard input. Called by `join` when it runs as root.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// State directory of the agent.
    #[arg(long, value_name = "DIR")]
    state_dir: PathBuf,
    #[command(flatten)]
    seal: SealLikeAgentArgs,
    /// Create only the sealing key; store no credentials.
    #[arg(long)]
    only_seal_key: bool,
}

pub(crate) fn store(
    agent: &AgentArgs,
    args: &StoreArgs,
    loaded: &LoadedSettings,
) -> anyhow::Result<u8> {
    let StoreArgs {
        state_dir,
        seal,
        only_seal_key,
    } = args;
    let seal = seal.settings(loaded, state_dir);
    if *only_seal_key {
        store_sealed(&seal, state_dir, &agent.runtime_dir, None)?;
        return Ok(0);
    }
    let mut text = String::new();
    let limit = 4 * MAX_JOIN_TOKEN_BYTES as u64;
    std::io::stdin().take(limit).read_to_string(&mut text)?;
    // Omit the parser's message, because it may quote a secret.
    let stored: Stored = serde_json::from_str(&text)
        .map_err(|_| anyhow::anyhow!("expected credentials on standard input"))?;
    store_sealed(&seal, state_dir, &agent.runtime_dir, Some(&stored))?;
    Ok(0)
}
