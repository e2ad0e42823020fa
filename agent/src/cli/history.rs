//! `sesame-agent history`, `diff` and `rollback`: the configurations that were accepted.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use comfy_table::{Table, presets};
use serde::de::DeserializeOwned;

use super::EXIT_WRONG;
use super::agent::{self, AgentArgs};
use crate::run::commands::InstanceCommand;
use crate::run::history::{AcceptedGeneration, Difference, History};

/// The place where generations are read.
#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    /// Read this state directory instead of asking the agent, which need not be running. Without it the agent of
    /// --runtime-dir is asked; where no agent runs in that of the settings, or in the default one, the state directory that belongs to it is read.
    #[arg(long, env = "SESAME_STATE_DIR", value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    state: StateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Generation to compare from.
    from: u64,
    /// Generation to compare with.
    to: u64,
}

#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    /// Generation to return to.
    generation: u64,
}

pub(crate) fn history(agent: &AgentArgs, args: &HistoryArgs) -> anyhow::Result<u8> {
    let listed = read(agent, &args.state, "/history", History::list)?;
    agent.output.write(&listed, || table(&listed))?;
    Ok(0)
}

/// Asks the agent for what is at `path`, or reads it from a state directory.
fn read<T: DeserializeOwned>(
    agent: &AgentArgs,
    args: &StateArgs,
    path: &str,
    offline: impl FnOnce(&History) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let gateway = agent.gateway.as_ref();
    let read = |state_dir: &Path| History::open(state_dir, gateway).and_then(|h| offline(&h));
    // An option on the command line takes precedence over an environment variable.
    if let Some(state_dir) = args
        .state_dir
        .as_deref()
        .filter(|_| !agent.runtime_dir_named)
    {
        return read(state_dir);
    }
    let socket = agent.socket();
    let path = gateway.map_or_else(|| path.to_owned(), |gateway| format!("{path}/{gateway}"));
    if let Some(answer) = agent::ask(&socket, &path)? {
        return serde_json::from_slice(&answer)
            .with_context(|| format!("the answer of {} is not understood", socket.display()));
    }
    match agent.state_of_host() {
        Some(state_dir) => read(state_dir),
        None => anyhow::bail!(
            "{}; or read what it has kept with --state-dir",
            agent::not_running(&socket)
        ),
    }
}

fn table(listed: &[AcceptedGeneration]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "GENERATION",
        "ACCEPTED AT",
        "REVISION",
        "CAUSE",
        "",
    ]);
    for generation in listed {
        let marks = [
            (generation.accepted_last, "accepted last"),
            (generation.rolled_back_to, "rolled back to"),
        ];
        let marks: Vec<&str> = marks
            .iter()
            .filter_map(|(is_so, mark)| is_so.then_some(*mark))
            .collect();
        table.add_row([
            generation.generation.to_string(),
            generation.accepted_at.clone(),
            generation.revision.chars().take(12).collect(),
            generation.cause.clone(),
            marks.join(", "),
        ]);
    }
    format!("{table}\n")
}

/// Prints the difference. The exit code is that of `diff`: 0 if there is none, 1 if there is one.
pub(crate) fn diff(agent: &AgentArgs, args: &DiffArgs) -> anyhow::Result<u8> {
    let DiffArgs { state, from, to } = args;
    let path = format!("/diff/{from}/{to}");
    let difference: Difference = read(agent, state, &path, |history| {
        history.difference(*from, *to)
    })?;
    agent.output.write(&difference, || lines(&difference))?;
    Ok(if difference == Difference::default() {
        0
    } else {
        EXIT_WRONG
    })
}

fn lines(difference: &Difference) -> String {
    let Difference {
        added,
        removed,
        changed,
    } = difference;
    let mut text = String::new();
    for (mark, names) in [("-", removed), ("+", added), ("~", changed)] {
        for name in names {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{mark} {name}");
        }
    }
    text
}

pub(crate) fn rollback(agent: &AgentArgs, args: &RollbackArgs) -> anyhow::Result<u8> {
    let generation = args.generation;
    agent::command(agent, InstanceCommand::Rollback { generation })
}
