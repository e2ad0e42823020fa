//! `sesame-agent doctor`: checks this host and suggests how to fix each problem.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory as _};
use nix::unistd::{User, geteuid};
use serde::Serialize;

use super::agent::{self, AgentArgs};
use super::settings::LoadedSettings;
use super::settings::arguments::in_one_line;
use super::settings::effective::effective;
use super::{Cli, Command, EXIT_FAULT, options, run};
use crate::doctor::facts::{AgentFacts, ClusterFacts, HostFacts};
use crate::doctor::gather::{GatherInputs, gather};
use crate::doctor::{FindingSeverity, HostFinding, findings};
use sesame_engine::inspect::{self, InspectedGateway};
use sesame_engine::reload::{Setting, SettingOrigin};
use sesame_engine::report::Report;
use sesame_engine::{RunOptions, Source};
use sesame_host::{free_ports, processes};
#[cfg(feature = "cluster")]
use sesame_sources::cluster::{ClusterSettings, stored_token::StoredToken};
use sesame_sources::last_good::LastGood;
use sesame_sources::manifests::Manifests;
#[cfg(feature = "cluster")]
use sesame_sources::seal::SealingKeys;

/// Works with or without a running agent, as root or as the agent's user. The exit code is 0 if
/// nothing prevents this host from serving, and 1 otherwise.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Also show the checks that passed.
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Examination {
    /// True if no finding is an error.
    healthy: bool,
    findings: Vec<HostFinding>,
}

pub(crate) fn main(
    agent: &AgentArgs,
    args: &DoctorArgs,
    loaded: &LoadedSettings,
) -> anyhow::Result<u8> {
    let found = findings(&examine(agent, loaded)?.facts);
    let examination = Examination {
        healthy: found
            .iter()
            .all(|finding| finding.severity < FindingSeverity::Error),
        findings: found,
    };
    agent
        .output
        .write(&examination, || text(&examination, args.all))?;
    Ok(if examination.healthy { 0 } else { EXIT_FAULT })
}

pub(crate) struct Examined {
    pub(crate) facts: HostFacts,
    pub(crate) settings: Vec<Setting>,
}

pub(crate) fn examine(agent: &AgentArgs, loaded: &LoadedSettings) -> anyhow::Result<Examined> {
    let (facts, settings) = ask(agent);
    let path = loaded.path.clone().unwrap_or_default();
    let mut faults: Vec<String> = loaded.faults.iter().map(|fault| fault.at(&path)).collect();
    let line: Vec<OsString> = match &settings {
        Some(settings) => command_line(settings),
        None => ["sesame-agent", "run"].map(OsString::from).to_vec(),
    };
    let from_file = if settings.is_some() {
        &[][..]
    } else {
        &loaded.accepted
    };
    let options = options::parse_with(line.clone(), from_file)
        .map_err(|error| in_one_line(&error))
        .and_then(|cli| match cli.command {
            Command::Run(args) => run::options(*args).map_err(|error| format!("{error:#}")),
            _ => Err("not the options of `run`".to_owned()),
        });
    let settings = settings.unwrap_or_else(|| effective(&Cli::command(), line, loaded));
    let options = match options {
        Ok(options) => Some(options),
        Err(why) => {
            // Report the error only if the service would not start. A running agent has accepted
            // its options, and credential paths (`%d/`) resolve only inside the unit.
            let mut values = settings.iter().flat_map(|setting| &setting.values);
            let foreign = values.any(|value| value.starts_with("%d/"));
            if loaded.path.is_some() && facts.pid.is_none() && !foreign {
                faults.push(format!("`sesame-agent run` would not start: {why}"));
            }
            None
        }
    };
    let runtime = agent::runtime()?;
    let value = |key: &str| {
        let found = settings.iter().find(|setting| setting.key == key);
        found.and_then(|setting| setting.values.first())
    };
    let state_dir = value("state-dir").map(PathBuf::from).unwrap_or_default();
    let unprivileged_owner = unprivileged_owner(&state_dir);
    let cluster = options
        .as_ref()
        .filter(|_| unprivileged_owner.is_none())
        .and_then(|options| cluster(&runtime, options, &agent.runtime_dir));
    let port_map = options
        .as_ref()
        .map(|options| free_ports::assigned(&options.port_map, &state_dir))
        .unwrap_or_default();
    let inputs = GatherInputs {
        settings: (loaded.path.clone(), faults),
        gateways: gateways(&state_dir, options.as_ref()),
        state_dir,
        runtime_dir: agent.runtime_dir.clone(),
        envoy: value("envoy").map(Into::into),
        heap: options.as_ref().and_then(|options| options.heap),
        port_map,
        addresses: options.map(|options| options.addresses).unwrap_or_default(),
        agent: facts,
        cluster,
        unprivileged_owner,
    };
    let facts = runtime.block_on(gather(inputs));
    Ok(Examined { facts, settings })
}

fn ask(agent: &AgentArgs) -> (AgentFacts, Option<Vec<Setting>>) {
    let socket = agent.socket();
    let pid = holder(agent);
    let silent = match agent::ask(&socket, "/gateways") {
        Ok(Some(answer)) => match serde_json::from_slice::<Report>(&answer) {
            Ok(report) => {
                let settings = agent::ask(&socket, "/settings").ok().flatten();
                let facts = AgentFacts {
                    pid: Some(report.agent.pid),
                    silent: None,
                    reasons: report.reasons,
                    warnings: report.warnings,
                };
                // Older agents do not serve their settings.
                let settings = settings.and_then(|answer| serde_json::from_slice(&answer).ok());
                return (facts, settings);
            }
            Err(error) => Some(format!("cannot parse its response: {error}")),
        },
        Ok(None) => pid.map(|_| "it has no socket".to_owned()),
        Err(error) => Some(format!("{error:#}")),
    };
    let facts = AgentFacts {
        pid,
        silent,
        ..AgentFacts::default()
    };
    (facts, None)
}

fn holder(agent: &AgentArgs) -> Option<u32> {
    let text = std::fs::read_to_string(agent.runtime_dir.join("agent.lock")).ok()?;
    let pid = text.trim().parse().ok()?;
    let runs = processes::arguments(pid).is_some_and(|all| all.iter().any(|one| one == "run"));
    runs.then_some(pid)
}

/// Builds a `run` command line with the same effect as these settings.
fn command_line(settings: &[Setting]) -> Vec<OsString> {
    let program = Cli::command();
    let switches: Vec<&str> = super::settings::arguments::options(&program)
        .filter(|option| matches!(option.get_action(), clap::ArgAction::SetTrue))
        .filter_map(clap::Arg::get_long)
        .collect();
    let mut line = vec!["sesame-agent".into(), "run".into()];
    for setting in settings
        .iter()
        .filter(|setting| setting.origin != SettingOrigin::Default)
    {
        let key = &setting.key;
        if switches.contains(&key.as_str()) {
            let on = setting.values.first().is_some_and(|value| value == "true");
            line.extend(on.then(|| format!("--{key}").into()));
        } else {
            line.extend(
                setting
                    .values
                    .iter()
                    .map(|value| format!("--{key}={value}").into()),
            );
        }
    }
    line
}

fn gateways(state_dir: &Path, options: Option<&RunOptions>) -> Vec<InspectedGateway> {
    let mut gateways = inspect::accepted(state_dir);
    let Some(RunOptions {
        source: Source::Manifests(dir),
        resolve,
        limits,
        ..
    }) = options
    else {
        return gateways;
    };
    if !dir.is_dir() {
        return gateways;
    }
    let mut manifests = Manifests::with_limits(dir, LastGood::none(), *limits);
    manifests.scan();
    let resolved = sesame_resolver::resolve(manifests.world(), resolve).gateways;
    for gateway in resolved.into_iter().map(InspectedGateway::of) {
        match gateways
            .iter_mut()
            .find(|before| before.gateway == gateway.gateway)
        {
            Some(before) => {
                *before = InspectedGateway {
                    addresses: std::mem::take(&mut before.addresses),
                    accepted_at: before.accepted_at,
                    ..gateway
                };
            }
            None => gateways.push(gateway),
        }
    }
    gateways
}

#[cfg(feature = "cluster")]
fn cluster(
    runtime: &tokio::runtime::Runtime,
    options: &RunOptions,
    runtime_dir: &Path,
) -> Option<ClusterFacts> {
    match &options.source {
        Source::Cluster(settings) => Some(runtime.block_on(async {
            let keys = SealingKeys::found(&options.seal).await;
            let settings = ClusterSettings {
                stored: Some(StoredToken::of_command(runtime_dir, keys.into())),
                ..settings.clone()
            };
            crate::doctor::cluster::ask(&settings).await
        })),
        _ => None,
    }
}

#[cfg(not(feature = "cluster"))]
fn cluster(_: &tokio::runtime::Runtime, _: &RunOptions, _: &Path) -> Option<ClusterFacts> {
    None
}

/// Returns the state directory's owner if this process is root and the owner is not. Root must not
/// use a kubeconfig that another user can modify.
fn unprivileged_owner(state_dir: &Path) -> Option<String> {
    let owner = std::fs::metadata(state_dir).ok()?.uid();
    (geteuid().is_root() && owner != 0).then(|| {
        let user = User::from_uid(owner.into()).ok().flatten();
        user.map_or_else(|| format!("#{owner}"), |user| user.name)
    })
}

fn text(examination: &Examination, all: bool) -> String {
    let mut text = String::new();
    let count = |weight| {
        let found = examination.findings.iter();
        found.filter(|finding| finding.severity == weight).count()
    };
    for finding in &examination.findings {
        if finding.severity == FindingSeverity::Ok && !all {
            continue;
        }
        let weight = match finding.severity {
            FindingSeverity::Ok => "ok",
            FindingSeverity::Note => "note",
            FindingSeverity::Warning => "warning",
            FindingSeverity::Error => "error",
        };
        let _ = writeln!(text, "{weight}: {}: {}", finding.check, finding.found);
        if !finding.expected.is_empty() {
            let _ = writeln!(text, "    expected: {}", finding.expected);
        }
        if !finding.remedy.is_empty() {
            let _ = writeln!(text, "    to fix it: {}", finding.remedy);
        }
    }
    let _ = writeln!(
        text,
        "{} checks: {} errors, {} warnings, {} notes",
        examination.findings.len(),
        count(FindingSeverity::Error),
        count(FindingSeverity::Warning),
        count(FindingSeverity::Note)
    );
    text
}
