//! `sesame-agent restart`: has Envoy replaced without dropping a request.

use clap::{Args, ValueEnum};

use super::agent::{self, AgentArgs};
use crate::envoy::restart::Strategy;
use crate::run::commands::InstanceCommand;

#[derive(Debug, Args)]
pub(crate) struct RestartArgs {
    /// Way in which Envoy is replaced.
    #[arg(long, value_enum, default_value = "auto")]
    strategy: StrategyArg,
}

/// Names of the strategies on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum StrategyArg {
    /// Hot if its conditions hold, else, or if it fails, by handover.
    Auto,
    /// Take the sockets over; statistics go on.
    Hot,
    /// A second Envoy on the same ports, then drain the first.
    Handover,
}

impl From<StrategyArg> for Strategy {
    fn from(strategy: StrategyArg) -> Self {
        match strategy {
            StrategyArg::Auto => Self::Auto,
            StrategyArg::Hot => Self::Hot,
            StrategyArg::Handover => Self::Handover,
        }
    }
}

pub(crate) fn main(agent: &AgentArgs, args: &RestartArgs) -> anyhow::Result<u8> {
    let strategy = args.strategy.into();
    agent::command(agent, InstanceCommand::Restart { strategy })
}
