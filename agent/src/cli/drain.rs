//! `sesame-agent drain`: takes a host out of service, puts it back, or stops Sesame on it.

use std::time::Duration;

use clap::Args;

use super::agent::{self, AgentArgs};
use super::{EXIT_FAULT, EXIT_USAGE, output};
use sesame_engine::commands::{DrainLimits, InstanceCommand};
use sesame_engine::shutdown::{StopRequest, end_left};

/// Grace period for clients that connect after the drain, before Envoy exits.
const LATE_CLIENT_GRACE: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// Timeout for the drain.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    timeout: u64,
    /// Time between becoming unready and asking clients to disconnect.
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    lame_duck: u64,
    /// Number of connections, of all protocols, at which the host counts as drained.
    #[arg(long, default_value_t = 0, value_name = "N")]
    until_connections: u64,
    /// After the drain, stop Envoy and the agent; also works without a running agent. Connections
    /// that remain at the timeout are closed.
    #[arg(long)]
    stop: bool,
    /// Undo a drain: become ready again.
    #[arg(long, conflicts_with_all = ["timeout", "lame_duck", "until_connections", "stop"])]
    undo: bool,
}

pub(crate) fn main(agent: &AgentArgs, args: &DrainArgs) -> anyhow::Result<u8> {
    let DrainArgs {
        timeout,
        lame_duck,
        until_connections,
        stop: is_stop,
        undo,
    } = args;
    let command = if *undo {
        InstanceCommand::Undrain
    } else {
        InstanceCommand::Drain(DrainLimits {
            timeout_seconds: *timeout,
            lame_duck_seconds: *lame_duck,
            until_connections: *until_connections,
        })
    };
    if *is_stop {
        if agent.gateway.is_some() {
            output::error(&anyhow::anyhow!(
                "--stop stops the agent and all of its Gateways; omit --gateway"
            ));
            return Ok(EXIT_USAGE);
        }
        let timeout = Duration::from_secs(*timeout);
        return agent::runtime()?.block_on(stop(agent, command, timeout));
    }
    agent::command(agent, command)
}

/// Also stops Envoy processes that are running without an agent.
async fn stop(agent: &AgentArgs, drain: InstanceCommand, timeout: Duration) -> anyhow::Result<u8> {
    let requested_grace = if agent::is_there(agent).await {
        // Stop even if the drain fails, connections remain at the timeout, or there are no
        // Gateways.
        let grace = match agent::send_command(agent, drain).await {
            Ok(0) => LATE_CLIENT_GRACE,
            Ok(_) => Duration::ZERO,
            Err(error) => {
                write_message(agent, &format!("not drained: {error:#}"))?;
                Duration::ZERO
            }
        };
        let request = StopRequest {
            grace_seconds: grace.as_secs(),
        };
        agent::stop(agent, &request).await?;
        Some(grace)
    } else {
        None
    };
    let left = match end_left(&agent.runtime_dir, timeout, requested_grace).await {
        Ok(left) => left,
        Err(error) => {
            write_message(agent, &format!("not ended: {error}"))?;
            return Ok(EXIT_FAULT);
        }
    };
    let message = match (requested_grace, left) {
        (Some(_), _) => "the agent and its Envoy have stopped",
        (None, 0) => "neither an agent nor Envoy is running here",
        (None, _) => "no agent was running here; its Envoy has stopped",
    };
    write_message(agent, message)?;
    Ok(0)
}

fn write_message(agent: &AgentArgs, message: &str) -> anyhow::Result<()> {
    let value = serde_json::json!({ "message": message });
    let read = agent.output.write_next(&value, || format!("{message}\n"));
    read.map(|_| ())
}
