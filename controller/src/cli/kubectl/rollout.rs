//! `kubectl sesame rollout`: shows and controls the staged rollout of a Gateway's revision. Commands
//! become an annotation of the Gateway, which names the revision for which they are meant.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde::Serialize;
use serde_json::json;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{Kind, ObjectKey};
use sesame_proto::bounds;
use sesame_proto::digest::short;
use sesame_proto::rollout::{Command, OPERATOR_PAUSED};
use sesame_proto::schema::RolloutRecord;
use sesame_proto::schema::rollout_record::Verdict;
use sesame_proto::terminal::plain;
use sesame_published::names::{MANIFEST_ENTRY, manifest_name};

use super::reading::ClusterReader;
use super::table::table;

const ANNOTATION: &str = "projectsesame.io/rollout";
const FIELD_MANAGER: &str = "kubectl-sesame";

#[derive(Debug, Subcommand)]
pub(super) enum RolloutCommand {
    /// Show the stage of the newest revision, and the hosts that have it; exit with 1 if it failed.
    Status(RolloutArgs),
    /// Release the newest revision to no further host.
    Pause(RolloutArgs),
    /// End a pause, or else start the next stage, even if the revision is held or still bakes.
    Resume(RolloutArgs),
    /// Return all hosts to the previous revision, with current endpoints and keys.
    Undo(RolloutArgs),
}

#[derive(Debug, Args)]
pub(super) struct RolloutArgs {
    /// Name of the Gateway, optionally with its namespace.
    #[arg(value_name = "[NAMESPACE/]GATEWAY")]
    name: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownRollout {
    gateway: String,
    /// Digest of the newest revision without endpoints and keys.
    digest: String,
    /// Digest of the last revision that reached all hosts.
    previous: String,
    verdict: &'static str,
    /// Counts from 1.
    stage: u32,
    stages: usize,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    hosts: Vec<ShownHost>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownHost {
    host: String,
    zone: String,
    released: bool,
    applied: bool,
}

/// Returns false if the revision failed.
pub(super) async fn main(reader: &ClusterReader, command: &RolloutCommand) -> Result<bool> {
    let (args, verb) = match command {
        RolloutCommand::Status(args) => (args, "status"),
        RolloutCommand::Pause(args) => (args, "pause"),
        RolloutCommand::Resume(args) => (args, "resume"),
        RolloutCommand::Undo(args) => (args, "undo"),
    };
    let (namespace, name) = args
        .name
        .split_once('/')
        .unwrap_or((&reader.default_namespace, &args.name));
    let gateway = NamespacedName::new(namespace, name);
    let (record, revision) = read(reader, &gateway).await?;
    let command = match command {
        RolloutCommand::Status(_) => {
            let shown = shown(reader, &gateway, record, &revision).await?;
            reader.print(&shown, |_| text(&shown))?;
            return Ok(!["Held", "Undone"].contains(&shown.verdict));
        }
        RolloutCommand::Pause(_) => Command::Pause,
        RolloutCommand::Resume(_) => Command::Resume {
            stage: record.number(),
        },
        RolloutCommand::Undo(_) => Command::Undo,
    };
    let (verdict, digest) = (record.verdict(), &record.digest);
    if verdict == Verdict::Done && !matches!(command, Command::Undo) {
        bail!("Gateway {gateway}: revision {digest} already reached all hosts");
    }
    if matches!(command, Command::Undo) && !record.can_undo() {
        bail!("Gateway {gateway}: no revision precedes {digest}; change the configuration back");
    }
    // Without the annotation, a paused stage bakes on.
    let is_unpaused = matches!(command, Command::Resume { .. })
        && is_paused(&record, annotation(reader, &gateway).await?.as_deref());
    let text = (!is_unpaused).then(|| command.text(digest));
    annotate(reader, &gateway, text.as_deref()).await?;
    let line = format!("Gateway {gateway}: {verb} of revision {digest} requested\n");
    crate::cli::output(line.as_bytes()).map(|()| true)
}

/// Returns true if only an operator's command stops the rollout, or will stop it as soon as the
/// controller has read the command.
fn is_paused(record: &RolloutRecord, command: Option<&str>) -> bool {
    let is_pausing = || {
        let command = command.and_then(Command::parse);
        command == Some((Command::Pause, &record.digest))
    };
    match record.verdict() {
        Verdict::Paused => record.reason == OPERATOR_PAUSED || is_pausing(),
        Verdict::Baking => is_pausing(),
        Verdict::Unknown | Verdict::Held | Verdict::Undone | Verdict::Done => false,
    }
}

async fn annotation(reader: &ClusterReader, gateway: &NamespacedName) -> Result<Option<String>> {
    let key = ObjectKey {
        kind: Kind::Gateway,
        name: gateway.clone(),
    };
    let found = reader.get(&key).await?;
    let value = found.map(|(_, object)| object["metadata"]["annotations"][ANNOTATION].clone());
    Ok(value.and_then(|value| value.as_str().map(str::to_owned)))
}

async fn read(reader: &ClusterReader, gateway: &NamespacedName) -> Result<(RolloutRecord, String)> {
    let api: Api<ConfigMap> = Api::namespaced(reader.client.clone(), &reader.published_in);
    let manifest = api.get(&manifest_name(gateway)).await.with_context(|| {
        format!(
            "cannot read the publication of Gateway {gateway} in the namespace {}; use \
             --published-in for another namespace",
            reader.published_in
        )
    })?;
    let entries = manifest.binary_data.unwrap_or_default();
    let bytes = entries.get(MANIFEST_ENTRY).context("has no manifest")?;
    let manifest = bounds::manifest(&bytes.0)?;
    let record = manifest.rollout.with_context(|| {
        format!("Gateway {gateway} has no stages; set spec.rollout.stages in its configuration")
    })?;
    Ok((record, manifest.revision))
}

/// Removes the annotation if `command` is `None`.
async fn annotate(
    reader: &ClusterReader,
    gateway: &NamespacedName,
    command: Option<&str>,
) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {ANNOTATION: command}}});
    let parameters = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let Some(version) = Kind::Gateway.api_versions().first() else {
        bail!("Gateways have no version");
    };
    let api = reader.api(Kind::Gateway, version, Some(&gateway.namespace));
    let patch = Patch::Merge(&patch);
    let patched = api.patch(&gateway.name, &parameters, &patch).await;
    patched.with_context(|| format!("cannot annotate Gateway {gateway} with {ANNOTATION}"))?;
    Ok(())
}

async fn shown(
    reader: &ClusterReader,
    gateway: &NamespacedName,
    record: RolloutRecord,
    revision: &str,
) -> Result<ShownRollout> {
    let rollout = reader.published(gateway).await?.rollout;
    let reports = reader.reports().await?.unwrap_or_default().into_iter();
    let name = gateway.to_string();
    let mut hosts: Vec<ShownHost> = reports
        .filter(|report| report.spec.gateway == name)
        .map(|report| {
            let status = report.status.unwrap_or_default();
            ShownHost {
                released: record.releases(&report.spec.host),
                applied: status.applied_revision == short(revision),
                host: report.spec.host,
                zone: status.zone,
            }
        })
        .collect();
    hosts.sort_by(|one, other| one.host.cmp(&other.host));
    Ok(ShownRollout {
        gateway: name,
        verdict: match record.verdict() {
            Verdict::Unknown => "Unknown",
            Verdict::Baking => "Baking",
            Verdict::Paused => "Paused",
            Verdict::Held => "Held",
            Verdict::Undone => "Undone",
            Verdict::Done => "Done",
        },
        stage: record.number(),
        stages: rollout.map_or(0, |rollout| rollout.stages.len()),
        digest: record.digest,
        previous: record.base,
        reason: record.reason,
        hosts,
    })
}

fn text(shown: &ShownRollout) -> String {
    let ShownRollout {
        gateway,
        digest,
        previous,
        verdict,
        stage,
        stages,
        reason,
        hosts,
    } = shown;
    let mut text = format!("Gateway {gateway}, revision {digest} after {previous}: {verdict}");
    if *verdict != "Done" {
        let _ = write!(text, ", stage {stage} of {stages}");
    }
    if !reason.is_empty() {
        let _ = write!(text, ": {}", plain(reason));
    }
    text.push('\n');
    let word = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let rows = hosts.iter().map(|host| {
        let ShownHost {
            host,
            zone,
            released,
            applied,
        } = host;
        vec![host.clone(), zone.clone(), word(*released), word(*applied)]
    });
    let headings = ["HOST", "ZONE", "RELEASED", "APPLIED"];
    text.push_str(&table(&headings, true, rows.collect(), "No hosts found."));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pause_of_operator_ends_without_command() {
        let digest = "0123456789abcdef";
        let paused = |verdict: Verdict, reason: &str, command: &str| {
            let record = RolloutRecord {
                digest: digest.to_owned(),
                verdict: verdict.into(),
                reason: reason.to_owned(),
                ..RolloutRecord::default()
            };
            is_paused(&record, Some(command))
        };
        let waits = "stage 1 waits for an operator";
        assert!(paused(Verdict::Paused, OPERATOR_PAUSED, ""));
        assert!(!paused(Verdict::Paused, waits, ""));
        assert!(!paused(Verdict::Held, OPERATOR_PAUSED, ""));
        // The controller has not recorded the pause yet.
        let pause = Command::Pause.text(digest);
        assert!(paused(Verdict::Baking, "", &pause));
        assert!(paused(Verdict::Paused, waits, &pause));
        assert!(!paused(Verdict::Held, "", &pause));
        assert!(!paused(
            Verdict::Baking,
            "",
            &Command::Pause.text("0000000000000000")
        ));
    }
}
