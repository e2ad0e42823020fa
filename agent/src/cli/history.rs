//! `sesame-agent history`, `diff`, `rollback`, `resume` and `accept`: what was served, and what is to be.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use comfy_table::{Table, presets};
use serde::Serialize;

use super::EXIT_WRONG;
use super::agent::{self, TargetArgs};
use super::output::OutputArgs;
use crate::run::DEFAULT_STATE_DIR;
use crate::run::history::{Difference, History};
use crate::run::orders::What;

/// Which Gateway's generations.
#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    /// The state directory of the agent; it need not run.
    #[arg(long, env = "SESAME_STATE_DIR", default_value = DEFAULT_STATE_DIR, value_name = "DIR")]
    state_dir: PathBuf,
    /// Of which Gateway, if there are several.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    gateway: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// The generation before.
    from: u64,
    /// The generation after.
    to: u64,
}

#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The generation to go back to.
    generation: u64,
}

#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    target: TargetArgs,
}

/// What Envoy accepted at one time.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    generation: u64,
    accepted_at: String,
    revision: String,
    cause: String,
    /// A cold start serves it.
    accepted_last: bool,
    /// Somebody has gone back to it.
    rolled_back_to: bool,
}

pub(crate) fn history(args: &HistoryArgs) -> anyhow::Result<u8> {
    let history = open(&args.state)?;
    let listed: Vec<Listed> = history
        .list()?
        .into_iter()
        .map(|meta| Listed {
            generation: meta.number,
            accepted_at: meta.time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            revision: meta.revision,
            cause: meta.cause,
            accepted_last: history.accepted() == Some(meta.number),
            rolled_back_to: history.pinned() == Some(meta.number),
        })
        .collect();
    args.output.write(&listed, || table(&listed))?;
    Ok(0)
}

fn table(listed: &[Listed]) -> String {
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

/// Like `diff`: 0 if there is no difference, 1 if there is one.
pub(crate) fn diff(args: &DiffArgs) -> anyhow::Result<u8> {
    let difference = open(&args.state)?.difference(args.from, args.to)?;
    args.output.write(&difference, || lines(&difference))?;
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

pub(crate) fn rollback(args: &RollbackArgs) -> anyhow::Result<u8> {
    let generation = args.generation;
    agent::order(&args.target, What::Rollback { generation })
}

pub(crate) fn resume(args: &GatewayArgs) -> anyhow::Result<u8> {
    agent::order(&args.target, What::Resume)
}

pub(crate) fn accept(args: &GatewayArgs) -> anyhow::Result<u8> {
    agent::order(&args.target, What::Accept)
}

fn open(args: &StateArgs) -> anyhow::Result<History> {
    History::open(&args.state_dir, args.gateway.as_deref())
}
