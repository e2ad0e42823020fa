//! `sesame-agent why`: shows which Gateways serve an object, or why no Gateway does.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use sesame_explain::{ServedPlace, served, served_text};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{ShownCondition, Statuses, conditions_of};
use sesame_kinds::world::{Kind, ObjectKey};

use super::EXIT_FAULT;
use super::agent::{self, AgentArgs};
use super::history::StateArgs;
use super::host::HostArgs;
use super::offline;
use super::render::gateway_name;
use sesame_engine::explaining::served_accepted;

/// Shows which Gateways serve an object, its conditions, and what keeps requests from reaching it.
/// The exit code is 0 if it is served without problems, else 1.
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// Read these Gateway API manifests instead of the agent's configuration; no running agent is
    /// required.
    #[arg(long, value_name = "DIR", conflicts_with = "state_dir")]
    manifests: Option<PathBuf>,
    /// Kind of the object: singular, plural or short name, case-insensitive.
    #[arg(value_name = "KIND", value_parser = kind)]
    kind: Kind,
    /// Name of the object; the namespace defaults to `default`.
    #[arg(value_name = "NAMESPACE/NAME", value_parser = gateway_name)]
    name: NamespacedName,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectAnswer {
    object: String,
    served: Vec<ServedPlace>,
    conditions: Vec<ShownCondition>,
    /// Problems with the object that are not in its conditions.
    problems: Vec<String>,
}

pub(crate) fn main(agent: &AgentArgs, args: &WhyArgs) -> anyhow::Result<u8> {
    if args.kind.cluster_scoped() {
        bail!(
            "a {} is not served directly; specify one of its Gateways",
            args.kind
        );
    }
    let object = args.kind.named(args.name.clone());
    let answer = match &args.manifests {
        Some(_) => from_manifests(args, &object)?,
        None => from_host(agent, args, &object)?,
    };
    agent.output.write(&answer, || text(&answer))?;
    let wrong = answer.conditions.iter().any(ShownCondition::is_fault);
    let well = !answer.served.is_empty() && !wrong && answer.problems.is_empty();
    Ok(if well { 0 } else { EXIT_FAULT })
}

fn from_manifests(args: &WhyArgs, object: &ObjectKey) -> anyhow::Result<ObjectAnswer> {
    let manifests = args.manifests.clone().unwrap_or_default();
    let read = offline::preview(&manifests, &args.host)?;
    read.warn_of_stand_ins();
    if !read.manifests.world().contains(object) && !read.is_implied(object) {
        bail!("--manifests {}: no {object}", manifests.display());
    }
    let name = object.to_string();
    let gateways = read.resolution.gateways.iter();
    let file_problems = read.problems.iter();
    let file_problems = file_problems.filter(|problem| problem.object.as_deref() == Some(&name));
    let object_problems = read.resolution.problems.iter();
    let object_problems = object_problems.filter(|problem| problem.object == *object);
    Ok(ObjectAnswer {
        served: gateways
            .flat_map(|gateway| served(&gateway.snapshot, &name))
            .collect(),
        conditions: conditions_of(&status(&read.resolution.statuses, object)?),
        problems: file_problems
            .map(|problem| problem.message.clone())
            .chain(object_problems.map(|problem| problem.message.clone()))
            .collect(),
        object: name,
    })
}

fn status(statuses: &Statuses, object: &ObjectKey) -> anyhow::Result<Value> {
    let mut found = statuses.objects();
    let found = found.find(|(kind, name, _)| *kind == object.kind && **name == object.name);
    Ok(serde_json::to_value(found.map(|(_, _, status)| status))?)
}

fn from_host(
    agent: &AgentArgs,
    args: &WhyArgs,
    object: &ObjectKey,
) -> anyhow::Result<ObjectAnswer> {
    let name = object.to_string();
    let served = args.state.read(
        agent,
        || agent::ask(&agent.socket(), &format!("/served/{name}")),
        |state_dir| Ok(served_accepted(state_dir, &name)),
    )?;
    // Conditions are available only from a running agent.
    let report = agent::find_report(agent, "/status")?;
    let mut answer = ObjectAnswer {
        object: name,
        served,
        conditions: Vec::new(),
        problems: Vec::new(),
    };
    if let Some(report) = report {
        let mut objects = report.objects.iter();
        let found = objects.find(|it| {
            it.kind == object.kind.as_str()
                && it.namespace == object.name.namespace
                && it.name == object.name.name
        });
        answer.conditions = found
            .map(|it| conditions_of(&it.status))
            .unwrap_or_default();
        let problems = report.source.problems.iter();
        let problems = problems.filter(|it| it.object.as_deref() == Some(&answer.object));
        answer.problems = problems.map(|problem| problem.message.clone()).collect();
    }
    Ok(answer)
}

/// Ignores write errors, because writing to a String cannot fail.
fn text(answer: &ObjectAnswer) -> String {
    let ObjectAnswer {
        object,
        served,
        conditions,
        problems,
    } = answer;
    let mut text = format!("{object}\n");
    text.push_str(&served_text(served, str::to_owned));
    for condition in conditions {
        let _ = writeln!(text, "  {condition}");
    }
    for problem in problems {
        let _ = writeln!(text, "  problem: {problem}");
    }
    text
}

/// Accepts upper or lower case, and the singular, plural or short form.
fn kind(text: &str) -> Result<Kind, String> {
    Kind::parse(text)
        .ok_or_else(|| format!("unknown kind {text:?}; expected a value such as httproute"))
}
