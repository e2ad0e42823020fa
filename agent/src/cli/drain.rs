//! `sesame-agent drain`: takes a host out of service, and puts it back.

use clap::Args;

use super::agent::{self, AgentArgs};
use crate::run::orders::What;

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// How long it may take.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    timeout: u64,
    /// From the loss of readiness until clients are asked to go.
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    lame_duck: u64,
    /// Done when no more connections than these are left, of all protocols.
    #[arg(long, default_value_t = 0, value_name = "N")]
    until_connections: u64,
    /// Take it back: be ready again.
    #[arg(long, conflicts_with_all = ["timeout", "lame_duck", "until_connections"])]
    undo: bool,
}

pub(crate) fn main(agent: &AgentArgs, args: &DrainArgs) -> anyhow::Result<u8> {
    let DrainArgs {
        timeout,
        lame_duck,
        until_connections,
        undo,
    } = args;
    let order = if *undo {
        What::Undrain
    } else {
        What::Drain {
            timeout_seconds: *timeout,
            lame_duck_seconds: *lame_duck,
            until_connections: *until_connections,
        }
    };
    agent::order(agent, order)
}
