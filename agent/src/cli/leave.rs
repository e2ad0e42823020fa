//! `sesame-agent leave`: undoes `join`, here and in the cluster.

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::json;

use super::agent::{self, AgentArgs};
use super::join::Places;
use super::output;
use crate::join::{credentials, leave, owner, service, settings_file};

/// Ends the service, if systemd runs it, removes this host from the cluster, and removes its credentials and the settings that
/// `join` wrote.
#[derive(Debug, Args)]
pub(crate) struct LeaveArgs {
    #[command(flatten)]
    places: Places,
    /// Remove everything here, even if the cluster cannot be told or an agent runs.
    #[arg(long)]
    force: bool,
    /// Tell the cluster, and remove nothing here: what root has the agent's user do.
    #[arg(long, hide = true)]
    only_cluster: bool,
}

pub(crate) fn main(agent: &AgentArgs, args: &LeaveArgs) -> anyhow::Result<u8> {
    let LeaveArgs {
        places:
            Places {
                state_dir,
                config,
                no_service,
            },
        force,
        only_cluster,
    } = args;
    let at = || format!("--config {}", config.display());
    let tell = || agent::runtime()?.block_on(leave::leave(state_dir));
    if *only_cluster {
        tell()?;
        return Ok(0);
    }
    let text = settings_file::read(config).with_context(at)?;
    let rest = settings_file::without(&text);
    if !credentials::is_there(state_dir) && rest == text {
        bail!(
            "this host has joined no cluster: {} and {} hold nothing of one",
            state_dir.display(),
            config.display()
        );
    }
    let host = credentials::host(state_dir).unwrap_or_default();
    if !no_service && service::is_there() {
        service::stop()?;
    } else if agent::ask(&agent.socket(), "/livez").is_ok_and(|answer| answer.is_some()) && !force {
        bail!(
            "an agent runs, and would go on; `sesame-agent drain --stop` ends it and its Envoys, then leave"
        );
    }
    let told = match owner::of(state_dir)? {
        None => tell(),
        Some(owner) => {
            let state = state_dir.to_string_lossy();
            let told = owner.run(&["leave", "--only-cluster", "--state-dir", &state], b"");
            told.map(drop)
        }
    };
    if let Err(error) = told {
        let hint = format!("`sesame-controller hosts revoke {host}` removes it there");
        if !force {
            return Err(error.context(format!(
                "the cluster still has this host; {hint}, and --force removes what is here"
            )));
        }
        output::error(&error.context(format!("the cluster still has this host; {hint}")));
    }
    credentials::remove(state_dir)
        .with_context(|| format!("cannot remove the credentials in {}", state_dir.display()))?;
    if rest != text {
        settings_file::write(config, &rest).with_context(at)?;
    }
    agent
        .output
        .write(&json!({"host": host, "left": true}), || {
            format!(
                "Host {host} has left the cluster. What it served last is still in {}.\n",
                state_dir.display()
            )
        })?;
    Ok(0)
}
