//! `sesame-agent history`, `diff`, `rollback`, `resume` and `accept`: what was served, and what is to be.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use comfy_table::{Table, presets};

use super::agent::{self, TargetArgs};
use super::{EXIT_WRONG, output};
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
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    state: StateArgs,
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

pub(crate) fn history(args: &HistoryArgs) -> anyhow::Result<u8> {
    let history = open(&args.state)?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "GENERATION",
        "ACCEPTED AT",
        "REVISION",
        "CAUSE",
        "",
    ]);
    for meta in history.list()? {
        let mut marks = Vec::new();
        if history.accepted() == Some(meta.number) {
            marks.push("accepted last");
        }
        if history.pinned() == Some(meta.number) {
            marks.push("rolled back to");
        }
        table.add_row([
            meta.number.to_string(),
            meta.time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            meta.revision.chars().take(12).collect(),
            meta.cause,
            marks.join(", "),
        ]);
    }
    output::text(&format!("{table}\n"))?;
    Ok(0)
}

/// Like `diff`: 0 if there is no difference, 1 if there is one.
pub(crate) fn diff(args: &DiffArgs) -> anyhow::Result<u8> {
    let difference = open(&args.state)?.difference(args.from, args.to)?;
    let Difference {
        added,
        removed,
        changed,
    } = &difference;
    let mut text = String::new();
    for (mark, names) in [("-", removed), ("+", added), ("~", changed)] {
        for name in names {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{mark} {name}");
        }
    }
    output::text(&text)?;
    Ok(if difference == Difference::default() {
        0
    } else {
        EXIT_WRONG
    })
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
