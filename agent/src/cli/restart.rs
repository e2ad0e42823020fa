//! `sesame-agent restart`: replaces Envoy without dropping a request.

use clap::Args;

use super::agent::{self, AgentArgs};
use sesame_engine::commands::InstanceCommand;
use sesame_envoy::restart::Strategy;

#[derive(Debug, Args)]
pub(crate) struct RestartArgs {
    /// How to replace Envoy.
    #[arg(long, value_enum, default_value = "auto")]
    strategy: Strategy,
}

pub(crate) fn main(agent: &AgentArgs, args: &RestartArgs) -> anyhow::Result<u8> {
    let strategy = args.strategy;
    agent::command(agent, InstanceCommand::Restart { strategy })
}
