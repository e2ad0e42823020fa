//! `sesame-agent history`, `diff` and `rollback`: lists, compares and restores accepted
//! configurations.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use comfy_table::{Table, presets};
use serde::de::DeserializeOwned;
use sesame_proto::digest::short;
use sesame_proto::schema::Snapshot;

use super::agent::{self, AgentArgs};
use super::host::HostArgs;
use super::replay::ReplayArgs;
use super::{EXIT_FAULT, manifests_diff};
use sesame_engine::commands::InstanceCommand;
use sesame_engine::history::{AcceptedGeneration, Difference, History};

/// Source from which generations are read.
#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    /// Read this state directory instead of asking the agent. By default, the state directory is
    /// read only if no agent is running.
    #[arg(long, env = "SESAME_STATE_DIR", value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

impl StateArgs {
    /// `--runtime-dir` on the command line takes precedence.
    pub(super) fn without_asking(&self, agent: &AgentArgs) -> Option<&Path> {
        self.state_dir
            .as_deref()
            .filter(|_| !agent.runtime_dir_named)
    }

    pub(super) fn read<T: DeserializeOwned>(
        &self,
        agent: &AgentArgs,
        ask: impl FnOnce() -> anyhow::Result<Option<Vec<u8>>>,
        offline: impl FnOnce(&Path) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        if let Some(state_dir) = self.without_asking(agent) {
            return offline(state_dir);
        }
        let socket = agent.socket();
        if let Some(answer) = ask()? {
            return agent::parse(&socket, &answer);
        }
        match agent.state_of_host() {
            Some(state_dir) => offline(state_dir),
            None => anyhow::bail!(
                "{}; or read its stored configuration with --state-dir",
                agent::not_running(&socket)
            ),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    state: StateArgs,
}

/// Shows the objects that differ between two accepted configurations. With --manifests, shows the
/// matches whose requests would be handled differently. With --requests, shows the requests of an
/// access log that would be. The exit code is 0 if nothing differs, else 1.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Compare how two directories of manifests handle requests, by match.
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], conflicts_with = "state_dir")]
    pub(super) manifests: Option<Vec<PathBuf>>,
    /// First generation to compare.
    #[arg(required_unless_present = "manifests", conflicts_with = "manifests")]
    from: Option<u64>,
    /// Second generation to compare.
    #[arg(required_unless_present = "manifests", conflicts_with = "manifests")]
    to: Option<u64>,
    #[command(flatten)]
    pub(super) replay: ReplayArgs,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    pub(super) host: HostArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    /// Generation to roll back to.
    generation: u64,
}

pub(crate) fn history(agent: &AgentArgs, args: &HistoryArgs) -> anyhow::Result<u8> {
    let listed = read(agent, &args.state, "/history", History::list)?;
    agent.output.write(&listed, || table(&listed))?;
    Ok(0)
}

fn read<T: DeserializeOwned>(
    agent: &AgentArgs,
    args: &StateArgs,
    path: &str,
    offline: impl FnOnce(&History) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let gateway = agent.gateway.as_ref();
    let path = gateway.map_or_else(|| path.to_owned(), |gateway| format!("{path}/{gateway}"));
    args.read(
        agent,
        || agent::ask(&agent.socket(), &path),
        |state_dir| History::open(state_dir, gateway).and_then(|h| offline(&h)),
    )
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
            short(&generation.revision).to_owned(),
            generation.cause.clone(),
            marks.join(", "),
        ]);
    }
    format!("{table}\n")
}

/// Like `diff`, exits with 0 if the configurations are equal, and with 1 if they differ.
pub(crate) fn diff(agent: &AgentArgs, args: &DiffArgs) -> anyhow::Result<u8> {
    let DiffArgs {
        manifests,
        from,
        to,
        replay,
        state,
        host: _,
    } = args;
    let (from, to) = match (manifests, from, to) {
        (Some(directories), _, _) => return manifests_diff::main(agent, args, directories),
        // Without manifests, clap requires both generations.
        (None, from, to) => (from.unwrap_or_default(), to.unwrap_or_default()),
    };
    if let Some(log) = &replay.requests {
        let [old, new] = snapshots(agent, state, [from, to])?;
        return replay.compare(agent, log, [vec![old], vec![new]]);
    }
    let path = format!("/diff/{from}/{to}");
    let difference: Difference = read(agent, state, &path, |history| history.difference(from, to))?;
    agent.output.write(&difference, || lines(&difference))?;
    Ok(if difference == Difference::default() {
        0
    } else {
        EXIT_FAULT
    })
}

/// Reads generations from the state directory, even if an agent is running.
fn snapshots(
    agent: &AgentArgs,
    args: &StateArgs,
    generations: [u64; 2],
) -> anyhow::Result<[Snapshot; 2]> {
    let state_dir = args.without_asking(agent).or_else(|| agent.state_of_host());
    let state_dir = state_dir.context("--requests reads stored generations: set --state-dir")?;
    let history = History::open(state_dir, agent.gateway.as_ref())?;
    let [from, to] = generations;
    Ok([history.snapshot(from)?, history.snapshot(to)?])
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
            let _ = writeln!(text, "{mark} {name}");
        }
    }
    text
}

pub(crate) fn rollback(agent: &AgentArgs, args: &RollbackArgs) -> anyhow::Result<u8> {
    let generation = args.generation;
    agent::command(agent, InstanceCommand::Rollback { generation })
}
