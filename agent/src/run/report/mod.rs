//! What a running agent says of itself, its Gateways and every object: one value, asked for over its socket.

pub(super) mod compose;
pub(super) mod expiry;
pub(super) mod health;
mod objects;
pub(super) mod transitions;

use std::fmt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sesame_gateway_api::status::AgentState;
use sesame_proto::provenance::Provenance;

use crate::quarantine::Refused;
use crate::source::problem::{Problem, Severity};

/// Everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Whether nothing is wrong anywhere.
    pub healthy: bool,
    /// What is wrong, a sentence each; empty when healthy.
    pub reasons: Vec<String>,
    /// What could be better on this host, though nothing is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
    /// What is not wrong yet, a sentence each: certificates that expire soon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The agent.
    pub agent: AgentReport,
    /// Where configuration comes from.
    pub source: SourceReport,
    /// By name.
    pub gateways: Vec<GatewayReport>,
    /// The objects with a status, by kind, namespace and name.
    pub objects: Vec<ObjectReport>,
}

/// The agent's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentReport {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// When it started.
    pub started: Timestamp,
    /// Whether it was told to stop.
    #[serde(default)]
    pub stopping: bool,
}

/// Where configuration comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceReport {
    /// `manifests`, `snapshotDir` or `cluster`.
    pub kind: String,
    /// The directory of manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifests: Option<PathBuf>,
    /// The directory of snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_dir: Option<PathBuf>,
    /// The cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterReport>,
    /// Whether it could be read the last time; if not, what was accepted before is served.
    pub available: bool,
    /// Why what was accepted before is served instead of what it says now.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Everything wrong in it.
    pub problems: Vec<ProblemReport>,
}

/// A cluster, and what of it is for this host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    /// How it is reached; not given for the ServiceAccount of a Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// Where snapshots are published.
    pub namespace: String,
    /// The fleet that this host belongs to.
    pub fleet: String,
    /// Only these Gateways, if there are any here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// What this host calls itself.
    pub host: String,
}

impl SourceReport {
    /// In a few words.
    pub fn title(&self) -> String {
        if let Some(cluster) = &self.cluster {
            let which = if cluster.gateways.is_empty() {
                format!("fleet {}", cluster.fleet)
            } else {
                cluster.gateways.join(", ")
            };
            return format!("the cluster (namespace {}, {which})", cluster.namespace);
        }
        let dir = self.manifests.as_ref().or(self.snapshot_dir.as_ref());
        let dir = dir.map(|dir| dir.display().to_string()).unwrap_or_default();
        match self.snapshot_dir {
            Some(_) => format!("the snapshots in {dir}"),
            None => format!("the manifests in {dir}"),
        }
    }
}

/// One thing wrong in the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProblemReport {
    /// How bad it is.
    pub severity: Severity,
    /// The file, relative to the directory, or the cluster's object; empty when it concerns all of the source.
    pub file: String,
    /// The line, from 1; 0 when it concerns the whole file.
    pub line: usize,
    /// `Kind/namespace/name`, when it could be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// What is wrong and what to do.
    pub message: String,
}

impl ProblemReport {
    /// Of something that resolution found, with the place of its object if that is known.
    pub(super) fn of_object(
        problem: &sesame_gateway_api::resolve::Problem,
        place: Option<(&Path, usize)>,
    ) -> Self {
        let (file, line) = place.map_or((String::new(), 0), |(file, line)| {
            (file.display().to_string(), line)
        });
        Self {
            severity: Severity::Warning,
            file,
            line,
            object: Some(problem.object.to_string()),
            message: problem.message.clone(),
        }
    }
}

impl From<&Problem> for ProblemReport {
    fn from(problem: &Problem) -> Self {
        let Problem {
            file,
            line,
            object,
            severity,
            message,
        } = problem;
        Self {
            severity: *severity,
            file: file.clone(),
            line: line.unwrap_or(0),
            object: object.as_ref().map(ToString::to_string),
            message: message.clone(),
        }
    }
}

/// One Gateway and its Envoy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayReport {
    /// `namespace/name`.
    pub gateway: String,
    /// How far Envoy has been brought to the newest configuration.
    pub state: AgentState,
    /// In a sentence, when the state alone does not say it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Addresses it listens on.
    pub addresses: Vec<String>,
    /// The revision that the source wants.
    pub wanted: String,
    /// The revision that Envoy has accepted.
    pub applied: String,
    /// The manifest's revision that was read last; only of sources that have manifests with revisions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wanted_revision: String,
    /// The manifest's revision that Envoy has accepted, all of it or what is left without what it refuses.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub applied_revision: String,
    /// When Envoy accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<Timestamp>,
    /// What is left out of what is served, because Envoy refuses it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedReport>,
    /// Why the newest change is refused as a whole, in Envoy's words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusal: Vec<String>,
    /// How far it is drained, if it is to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<String>,
    /// The Envoy.
    pub envoy: EnvoyReport,
}

/// One object, or a part of one, that Envoy refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedReport {
    /// The kind; empty, as the namespace, where what is refused is of no single object.
    pub kind: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// Which part of it: `rules/0/matches/1`; empty for all of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub section: String,
    /// What happens instead.
    pub effect: String,
    /// Why, in Envoy's words.
    pub envoy_words: String,
    /// Since when.
    pub since: Timestamp,
}

impl From<&Refused> for RefusedReport {
    fn from(refused: &Refused) -> Self {
        let Refused {
            object,
            effect,
            envoy_words,
            since,
        } = refused;
        let (kind, namespace, name, section) = match Provenance::parse(object) {
            Ok(found) => (
                found.kind,
                found.namespace,
                found.name,
                found.part.to_string(),
            ),
            // Several CA bundles in one, or a virtual host without routes.
            Err(_) => ("", "", object.as_str(), String::new()),
        };
        Self {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            section,
            effect: effect.clone(),
            envoy_words: envoy_words.clone(),
            since: *since,
        }
    }
}

impl fmt::Display for RefusedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
            section,
            effect,
            envoy_words,
            since: _,
        } = self;
        let parts = [kind, namespace, name, section];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let object: Vec<&str> = parts.map(String::as_str).collect();
        write!(f, "{}: {envoy_words}; {effect}", object.join("/"))
    }
}

/// An Envoy process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvoyReport {
    /// As the supervisor sees it.
    pub state: String,
    /// Its process; 0 when there is none.
    pub pid: u32,
    /// Whether it serves something that was proven to be accepted.
    #[serde(default)]
    pub serves: bool,
    /// Its version.
    pub version: String,
    /// The admin socket, for those who want to ask it themselves.
    pub admin: PathBuf,
}

/// The status of one object, as Kubernetes would show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReport {
    /// The kind.
    pub kind: String,
    /// The namespace; empty for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The Gateways that it is about, as `namespace/name`; none of a GatewayClass, or where it has come to none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// `.status`.
    pub status: Value,
}
