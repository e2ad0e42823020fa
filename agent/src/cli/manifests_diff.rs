//! `sesame-agent diff --manifests OLD NEW`: lists matches whose requests are handled differently.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use sesame_explain::{ChangedAnswer, changed_answers, changes_text};
use sesame_kinds::api::NamespacedName;
use sesame_resolver::ResolvedGateway;

use super::agent::AgentArgs;
use super::history::DiffArgs;
use super::offline::{self, RemoteKeys};
use super::{EXIT_FAULT, forecast};

/// Like `diff`, exits with 0 if all requests are handled in the same way, and with 1 otherwise.
pub(super) fn main(
    agent: &AgentArgs,
    args: &DiffArgs,
    directories: &[PathBuf],
) -> anyhow::Result<u8> {
    let mut read = Vec::new();
    for directory in directories {
        let found = offline::read(directory, &args.host, RemoteKeys::Assumed)?;
        for problem in &found.problems {
            tracing::warn!("{}:{}: {}", problem.file, problem.line, problem.message);
        }
        read.push(by_name(found.resolution.gateways));
    }
    let [old, new] = read.as_slice() else {
        anyhow::bail!("--manifests: expected two directories, OLD and NEW");
    };
    if let Some(log) = &args.replay.requests {
        let snapshots = |of: &BTreeMap<NamespacedName, ResolvedGateway>| {
            let wanted = agent.gateway.as_ref();
            let chosen = of.values();
            let chosen = chosen.filter(|it| wanted.is_none_or(|wanted| *wanted == it.gateway));
            chosen.map(|it| it.snapshot.clone()).collect::<Vec<_>>()
        };
        return args
            .replay
            .compare(agent, log, [snapshots(old), snapshots(new)]);
    }
    let names: BTreeSet<&NamespacedName> = old.keys().chain(new.keys()).collect();
    let wanted = agent.gateway.as_ref();
    for (name, old) in old {
        if wanted.is_none_or(|wanted| wanted == name)
            && let Some(new) = new.get(name)
        {
            let versions = [old, new].map(|it| (&it.snapshot, &it.keys[..]));
            let forecast = forecast::forecast(agent, &args.host, name, versions)?;
            tracing::info!("forecast for Gateway {name}: {forecast}");
        }
    }
    let mut changed: Vec<ChangedAnswer> = names
        .into_iter()
        .filter(|name| wanted.is_none_or(|wanted| wanted == *name))
        .flat_map(|name| {
            let snapshot = |of: &BTreeMap<NamespacedName, ResolvedGateway>| {
                of.get(name).map(|it| it.snapshot.clone())
            };
            changed_answers(snapshot(old).as_ref(), snapshot(new).as_ref())
        })
        .collect();
    changed.sort();
    agent
        .output
        .write(&changed, || changes_text(&changed, str::to_owned))?;
    Ok(if changed.is_empty() { 0 } else { EXIT_FAULT })
}

fn by_name(gateways: Vec<ResolvedGateway>) -> BTreeMap<NamespacedName, ResolvedGateway> {
    let named = gateways.into_iter().map(|it| (it.gateway.clone(), it));
    named.collect()
}
