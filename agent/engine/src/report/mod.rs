//! A running agent's report on itself, its Gateways and every object.

pub(super) mod compose;
pub(super) mod expiry;
pub(super) mod health;
mod inputs;
mod objects;
mod scarcity;
pub(super) mod transitions;
mod verdicts;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sesame_kinds::status::AgentState;
use sesame_proto::key_sets::KeySetCopy;
use sesame_proto::provenance::Provenance;

pub use crate::orders::{AcmeReport, OrderedCertificate};
use sesame_apply::quarantine::Refused;
use sesame_sources::bundles::BundleReport;
use sesame_sources::problem::SourceProblem;

/// The whole report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// True if nothing is wrong anywhere.
    pub healthy: bool,
    /// One sentence per problem; empty if the host is healthy.
    pub reasons: Vec<String>,
    /// Suggestions for improving this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
    /// Warnings, one sentence each, for example about certificates that expire soon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Gateways whose instance has not started yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starting: Vec<String>,
    /// The agent.
    pub agent: AgentReport,
    /// The source of configuration.
    pub source: SourceReport,
    /// The Gateways, by name.
    pub gateways: Vec<GatewayReport>,
    /// The objects with a status, by kind, namespace and name.
    pub objects: Vec<ObjectReport>,
    /// Digest of the report's inputs. Reports with equal digests are equal, unless one omits the
    /// objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub inputs: String,
}

/// The argument determines whether the report contains the statuses of all objects.
pub(super) type ReportSource = Arc<dyn Fn(bool) -> Report + Send + Sync>;

/// The agent's process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentReport {
    /// Version of the program.
    pub version: String,
    /// Process ID.
    pub pid: u32,
    /// When the process started.
    pub started: Timestamp,
    /// True once the agent is stopping together with Envoy.
    #[serde(default)]
    pub stopping: bool,
    /// Origin of the key that seals private keys; `off` if they are stored in plaintext.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub keys_at_rest: String,
}

/// The source of configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceReport {
    /// `manifests`, `snapshotDir`, `bundles` or `cluster`.
    pub kind: String,
    /// The manifest directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifests: Option<PathBuf>,
    /// The snapshot directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_dir: Option<PathBuf>,
    /// The bundle directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle_dir: Option<PathBuf>,
    /// The files in the bundle directory, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bundles: Vec<BundleReport>,
    /// The cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterReport>,
    /// True if the last read succeeded. Otherwise, the last accepted configuration is served.
    pub available: bool,
    /// Why the last accepted configuration is served instead of the newest.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// All problems with the source.
    pub problems: Vec<SourceProblem>,
    /// Number of listener hostnames that no certificate covers; set for manifests only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncovered_hostnames: Option<usize>,
    /// Objects whose certificate request has not been answered yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requested: Vec<String>,
    /// Key sets that this host fetches; set for manifests only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key_sets: Vec<KeySetReport>,
    /// Certificate orders by ACME; set if certificates are requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acme: Option<AcmeReport>,
}

/// A key set that this host fetches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeySetReport {
    /// URI of the key set.
    pub uri: String,
    /// Time of the last successful fetch (RFC 3339), accurate to an hour, or empty.
    pub fetched_at: String,
    /// Error from the last fetch; empty if it succeeded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

impl KeySetReport {
    fn of(copy: &KeySetCopy) -> Self {
        let KeySetCopy {
            uri,
            jwks: _,
            fetched_at,
            error,
        } = copy;
        Self {
            uri: uri.clone(),
            fetched_at: fetched_at.clone(),
            error: error.clone(),
        }
    }
}

/// The source cluster, and the part of it that this host serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    /// Kubeconfig file; `None` if the Pod's ServiceAccount is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the published snapshots.
    pub namespace: String,
    /// The fleet that this host belongs to.
    pub fleet: String,
    /// Gateways to serve; if empty, all Gateways of the fleet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// Name of this host.
    pub host: String,
}

impl SourceReport {
    /// Returns a short description of the source.
    pub fn title(&self) -> String {
        if let Some(cluster) = &self.cluster {
            let which = if cluster.gateways.is_empty() {
                format!("fleet {}", cluster.fleet)
            } else {
                cluster.gateways.join(", ")
            };
            return format!("the cluster (namespace {}, {which})", cluster.namespace);
        }
        if let Some(dir) = &self.bundle_dir {
            return format!("the bundles in {}", dir.display());
        }
        let dir = self.manifests.as_ref().or(self.snapshot_dir.as_ref());
        let dir = dir.map(|dir| dir.display().to_string()).unwrap_or_default();
        match self.snapshot_dir {
            Some(_) => format!("the snapshots in {dir}"),
            None => format!("the manifests in {dir}"),
        }
    }
}

/// One Gateway and its Envoy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayReport {
    /// `namespace/name`.
    pub gateway: String,
    /// State of the Gateway.
    pub state: AgentState,
    /// Explanation of the state, one sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Addresses on which the Gateway listens.
    pub addresses: Vec<String>,
    /// Ports of this host on which Envoy listens, such as `TCP/8443`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_ports: Vec<String>,
    /// The source's newest revision.
    pub wanted: String,
    /// Revision that Envoy has accepted.
    pub applied: String,
    /// Revision of the newest manifest, if the source's manifests have revisions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wanted_revision: String,
    /// Revision of the manifest that Envoy has accepted, possibly reduced.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub applied_revision: String,
    /// When Envoy accepted this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<Timestamp>,
    /// Revision that is stored for a cold start; empty if this agent has not stored one yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stored: String,
    /// Parts that are not served because Envoy rejects them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedReport>,
    /// Listeners that do not present one of their certificates, each with the result of its
    /// handshakes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unshown: BTreeMap<String, String>,
    /// Envoy's reasons for rejecting the newest change as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusal: Vec<String>,
    /// Certificates that are still trusted, although rotations removed them from trust bundles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retained: Vec<RetainedReport>,
    /// Number of backends whose endpoints are inlined in the list of clusters, because Envoy may
    /// not watch more files.
    #[serde(default, skip_serializing_if = "is_none_inline")]
    pub inline_backends: usize,
    /// Progress of the current drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<String>,
    /// The Envoy.
    pub envoy: EnvoyReport,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_none_inline(count: &usize) -> bool {
    *count == 0
}

/// A certificate that is still trusted, although a rotation removed it from a trust bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetainedReport {
    /// The bundle: `ConfigMap/namespace/name`, or several joined by `+`.
    pub bundle: String,
    /// Subject of the certificate.
    pub subject: String,
    /// Serial number of the certificate, in lower-case hexadecimal.
    pub serial: String,
    /// When trust in the certificate ends.
    pub until: Timestamp,
}

/// An object, or a part of an object, that Envoy rejects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedReport {
    /// The kind; empty if the rejected part does not belong to a single object.
    pub kind: String,
    /// The namespace; empty if the kind is empty.
    pub namespace: String,
    /// The name of the object, or of the rejected part if the kind is empty.
    pub name: String,
    /// Rejected part, such as `rules/0/matches/1`; empty if Envoy rejects the whole object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub section: String,
    /// Effect on clients.
    pub effect: String,
    /// Envoy's error message.
    pub envoy_words: String,
    /// When Envoy first rejected this part.
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
            // For example, several CA bundles together, or a virtual host without routes.
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
    /// State of the process, according to the supervisor.
    pub state: String,
    /// Process ID; 0 if no process is running.
    pub pid: u32,
    /// True if the process serves a verified configuration.
    #[serde(default)]
    pub serves: bool,
    /// Version of the program.
    pub version: String,
    /// Admin socket.
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
    /// Gateways to which the status refers, as `namespace/name`; empty for a GatewayClass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// The value of `.status`.
    pub status: Value,
}
