//! `sesame-agent leave`: undoes `join` on this host and in the cluster.

use std::path::Path;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::json;

use super::agent::{self, AgentArgs};
use super::join::Places;
use super::output;
use super::seal::{SealLikeAgentArgs, options as seal_options};
use super::settings::LoadedSettings;
use sesame_host::remove_if_exists;
use sesame_sources::cluster::stored_token::StoredToken;
use sesame_sources::join::{credentials, leave, owner, service, settings_file};
use sesame_sources::seal::{SealSettings, SealingKeys};

/// Stops the service, if systemd runs it, removes this host from the cluster, and removes its
/// credentials and the settings that `join` wrote.
#[derive(Debug, Args)]
pub(crate) struct LeaveArgs {
    #[command(flatten)]
    places: Places,
    #[command(flatten)]
    seal: SealLikeAgentArgs,
    /// Remove everything on this host, even if the cluster is unreachable or an agent is running.
    #[arg(long)]
    force: bool,
    /// Only remove this host from the cluster; root runs this as the agent's user.
    #[arg(long, hide = true)]
    only_cluster: bool,
}

pub(crate) fn main(
    agent: &AgentArgs,
    args: &LeaveArgs,
    loaded: &LoadedSettings,
) -> anyhow::Result<u8> {
    let LeaveArgs {
        places:
            Places {
                state_dir,
                config,
                no_service,
            },
        seal,
        force,
        only_cluster,
    } = args;
    let at = || format!("--config {}", config.display());
    let seal = seal.settings(loaded, state_dir);
    if *only_cluster {
        leave_cluster(agent, state_dir, &seal)?;
        return Ok(0);
    }
    let text = settings_file::read(config).with_context(at)?;
    let rest = settings_file::without(&text);
    if !credentials::is_there(state_dir) && rest == text {
        bail!(
            "this host has not joined a cluster: neither {} nor {} contains data from `join`",
            state_dir.display(),
            config.display()
        );
    }
    let host = credentials::host(state_dir).unwrap_or_default();
    if !no_service && service::is_there() {
        service::stop()?;
    } else if agent::ask(&agent.socket(), "/livez").is_ok_and(|answer| answer.is_some()) && !force {
        bail!(
            "an agent is still running; stop it and its Envoys with `sesame-agent drain --stop`, then leave"
        );
    }
    let result = match owner::find(state_dir)? {
        None => leave_cluster(agent, state_dir, &seal),
        Some(owner) => leave_cluster_as(owner, agent, state_dir, &seal),
    };
    if let Err(error) = result {
        let hint = format!("`sesame-controller hosts revoke {host}` removes it there");
        if !force {
            return Err(error.context(format!(
                "the cluster still lists this host; {hint}; to clean up this host anyway, pass --force"
            )));
        }
        output::error(&error.context(format!("the cluster still lists this host; {hint}")));
    }
    remove_credentials(&agent.runtime_dir, state_dir)?;
    if rest != text {
        settings_file::write(config, &rest).with_context(at)?;
    }
    agent
        .output
        .write(&json!({"host": host, "left": true}), || {
            format!(
                "Host {host} has left the cluster. Its last configuration is still in {}.\n",
                state_dir.display()
            )
        })?;
    Ok(0)
}

fn remove_credentials(runtime_dir: &Path, state_dir: &Path) -> anyhow::Result<()> {
    let copy = StoredToken::copy_below(runtime_dir);
    remove_if_exists(&copy).with_context(|| format!("cannot remove {}", copy.display()))?;
    credentials::remove(state_dir)
        .with_context(|| format!("cannot remove the credentials in {}", state_dir.display()))
}

fn leave_cluster(agent: &AgentArgs, state_dir: &Path, seal: &SealSettings) -> anyhow::Result<()> {
    agent::runtime()?.block_on(async {
        let keys = SealingKeys::found(seal).await;
        let sealed = StoredToken::of_command(&agent.runtime_dir, keys.into());
        leave::leave(state_dir, &sealed).await
    })
}

/// Runs `leave --only-cluster` as the agent's user, who owns the credential.
fn leave_cluster_as(
    owner: owner::Owner,
    agent: &AgentArgs,
    state_dir: &Path,
    seal: &SealSettings,
) -> anyhow::Result<()> {
    let state = state_dir.to_string_lossy();
    let runtime = agent.runtime_dir.to_string_lossy();
    let seal = seal_options(seal);
    let mut command = vec!["leave", "--only-cluster", "--state-dir", &state];
    command.extend(["--runtime-dir", &runtime]);
    command.extend(seal.iter().map(String::as_str));
    owner.run(&command, b"").map(drop)
}
