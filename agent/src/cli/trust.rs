//! `sesame-agent trust`: manages the public keys that may sign bundles for this host.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde::Serialize;
use sesame_proto::signature::{MAX_KEYS, TrustedKeys};

use super::EXIT_FAULT;
use super::output::Format;
use super::source::read_trusted;
use sesame_engine::DEFAULT_STATE_DIR;
use sesame_sources::bundles::state::BundleState;

#[derive(Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// Also trust the public keys in these files (PEM, Ed25519). A running agent applies the change
    /// immediately.
    Add(AddArgs),
    /// List the trusted keys.
    List(ListArgs),
    /// Stop trusting a key. Bundles signed with it are served until a newer bundle replaces them.
    Remove(RemoveArgs),
}

/// Options common to all `trust` commands.
#[derive(Debug, Args)]
struct TrustArgs {
    /// State directory of the agent.
    #[arg(long, env = "SESAME_STATE_DIR", default_value = DEFAULT_STATE_DIR, value_name = "DIR")]
    state_dir: PathBuf,
    /// Output format.
    #[arg(long, short, default_value = "table")]
    output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    trust: TrustArgs,
    /// Public key files, in the output format of `openssl pkey -in KEY -pubout`.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    trust: TrustArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    trust: TrustArgs,
    /// Key ID from `sesame-agent trust list`.
    #[arg(value_name = "ID")]
    id: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TrustedKey {
    id: String,
    pem: String,
}

pub(crate) fn main(command: &TrustCommand) -> anyhow::Result<u8> {
    match command {
        TrustCommand::Add(AddArgs { trust, files }) => {
            let state = BundleState::open(&trust.state_dir)?;
            let added = read_trusted(files)?;
            let mut all = state.trusted()?;
            for pem in added.to_pem().values() {
                if all.add_pem(pem.as_bytes()).is_err() {
                    bail!(
                        "at most {MAX_KEYS} keys can be trusted; remove an unused one with `sesame-agent trust remove ID`"
                    );
                }
            }
            state.trust(&added)?;
            print(trust, &added)
        }
        TrustCommand::List(ListArgs { trust }) => {
            print(trust, &BundleState::open(&trust.state_dir)?.trusted()?)
        }
        TrustCommand::Remove(RemoveArgs { trust, id }) => {
            let state = BundleState::open(&trust.state_dir)?;
            if !state.distrust(id)? {
                let names = state.trusted()?.names();
                tracing::error!("key {id:?} is not trusted on this host (trusted: {names})");
                return Ok(EXIT_FAULT);
            }
            print(trust, &state.trusted()?)
        }
    }
}

fn print(args: &TrustArgs, keys: &TrustedKeys) -> anyhow::Result<u8> {
    let keys = keys.to_pem().into_iter();
    let keys: Vec<TrustedKey> = keys.map(|(id, pem)| TrustedKey { id, pem }).collect();
    args.output.write(&keys, || {
        let ids: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
        ids.iter().flat_map(|id| [*id, "\n"]).collect()
    })?;
    Ok(0)
}
