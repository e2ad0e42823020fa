//! `sesame-agent status`: shows problems and Gateways as reported by the running agent.

mod conditions;
pub(crate) mod selection;
mod summary;
mod text;

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;

use self::conditions::is_wrong;
use self::selection::Selection;
use super::agent::{self, AgentArgs};
use super::output::{self, Format};
use super::{EXIT_FAULT, EXIT_USAGE};
use sesame_engine::report::Report;
use sesame_kinds::status::AgentState;

const EVERY: Duration = Duration::from_secs(1);
/// Clears the screen and moves the cursor to the top left corner.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Shows problems, then Gateways, then the number of served objects by kind. The exit code is 0 if
/// the selected objects have no problems, else 1.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Show only these objects, named as in kubectl: KIND, KIND NAME... or KIND/NAME...; kinds are
    /// case-insensitive, and singular, plural or short; a namespace may precede the name
    /// (httproute/default/web). All conditions are shown for objects selected by name.
    #[arg(value_name = "OBJECT")]
    objects: Vec<String>,
    /// Show only objects in this namespace.
    #[arg(long, short)]
    namespace: Option<String>,
    /// Show every condition of every object, and every problem.
    #[arg(long)]
    all: bool,
    /// Show the status whenever it changes, until Ctrl-C.
    #[arg(long, short)]
    watch: bool,
    /// For a readiness probe: exit with 0 and no output if /readyz reports ready and this host has
    /// a Gateway to serve.
    #[arg(long, conflicts_with_all = ["objects", "namespace", "all", "watch"])]
    ready: bool,
}

pub(crate) fn main(agent: &AgentArgs, args: &StatusArgs) -> anyhow::Result<u8> {
    let StatusArgs {
        objects,
        namespace,
        all,
        watch,
        ready,
    } = args;
    if *ready {
        return is_ready(agent);
    }
    let gateway = agent.gateway.as_ref().map(ToString::to_string);
    let selection = match Selection::parse(objects, namespace.clone(), gateway, *all) {
        Ok(selection) => selection,
        Err(error) => {
            output::error(&error);
            return Ok(EXIT_USAGE);
        }
    };
    if *watch {
        return follow(agent, &selection);
    }
    let (report, _) = ask(agent, &selection)?;
    agent
        .output
        .write(&report, || text::text(&report, &selection))?;
    let missing = selection.missing(&report);
    for name in &missing {
        output::error(&anyhow::anyhow!("{name} was not found, or has no status"));
    }
    let well = is_well(&report, &selection) && missing.is_empty();
    Ok(if well { 0 } else { EXIT_FAULT })
}

/// A host without Gateways is healthy, but not ready to receive traffic.
fn is_ready(agent: &AgentArgs) -> anyhow::Result<u8> {
    let socket = agent.socket();
    agent::ask(&socket, "/readyz")?.ok_or_else(|| agent::not_running(&socket))?;
    if agent::report(agent, "/gateways")?.gateways.is_empty() {
        output::error(&anyhow::anyhow!("no Gateway to serve yet"));
        return Ok(EXIT_FAULT);
    }
    Ok(0)
}

fn ask(agent: &AgentArgs, selection: &Selection) -> anyhow::Result<(Report, String)> {
    let mut report = agent::report(agent, "/status")?;
    let inputs = std::mem::take(&mut report.inputs);
    Ok((selection.apply(report)?, inputs))
}

/// Returns `None` if the inputs are unchanged. Older agents report no digest, so their inputs
/// always count as changed.
fn ask_newer(
    agent: &AgentArgs,
    selection: &Selection,
    inputs: &str,
) -> anyhow::Result<Option<(Report, String)>> {
    let same = !inputs.is_empty() && agent::report(agent, "/gateways")?.inputs == inputs;
    if same {
        Ok(None)
    } else {
        ask(agent, selection).map(Some)
    }
}

fn follow(agent: &AgentArgs, selection: &Selection) -> anyhow::Result<u8> {
    let clears = agent.output == Format::Table && std::io::stdout().is_terminal();
    let (mut shown, mut failed) = (None, None);
    let mut inputs = String::new();
    loop {
        match ask_newer(agent, selection, &inputs) {
            Ok(Some((report, of))) if shown.as_ref() != Some(&report) => {
                inputs = of;
                let text = || {
                    let text = text::text(&report, selection);
                    // The blank line separates consecutive reports if the screen is not cleared.
                    format!("{}{text}\n", if clears { CLEAR } else { "" })
                };
                if !agent.output.write_next(&report, text)? {
                    return Ok(0);
                }
                (shown, failed) = (Some(report), None);
            }
            Ok(same) => {
                inputs = same.map_or(inputs, |(_, of)| of);
                failed = None;
            }
            Err(error) => {
                let words = format!("{error:#}");
                if failed.as_ref() != Some(&words) {
                    output::error(&error);
                    failed = Some(words);
                }
                // After an error, show the next report even if it equals the last one shown.
                shown = None;
                inputs.clear();
            }
        }
        std::thread::sleep(EVERY);
    }
}

fn is_well(report: &Report, selection: &Selection) -> bool {
    if selection.is_everything() {
        return report.healthy;
    }
    let serves = |gateways: &[sesame_engine::report::GatewayReport]| {
        gateways
            .iter()
            .all(|gateway| gateway.state == AgentState::Serving)
    };
    (selection.names_objects() || serves(&report.gateways)) && !report.objects.iter().any(is_wrong)
}
