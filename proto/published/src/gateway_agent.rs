//! Defines `GatewayAgent`, one host's report on one Gateway. Reports contain no configuration
//! or keys.

use jiff::Timestamp;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use sesame_kinds::status::AgentState;
use sesame_proto::rollout::HostTraffic;

/// Field manager for the status. Its `managedFields` entry contains the API server's time of the
/// last write.
pub const STATUS_MANAGER: &str = "sesame-agent-status";

/// Maximum number of entries in a list.
pub const MAX_ENTRIES: usize = 100;
/// Maximum number of reported rules per route.
pub const MAX_RULES: usize = 16;
/// Maximum number of addresses that a host may claim.
pub const MAX_REPORTED_ADDRESSES: usize = 256;
/// Maximum interval between reports from an unchanged host, in seconds.
pub const MAX_REPORT_SECONDS: u32 = 3600;
/// Maximum length of a string in characters, including the ellipsis. Messages from Envoy can be
/// longer.
pub const MAX_TEXT: usize = 1025;
const MAX_NAME: usize = 1024;
const MAX_WORD: usize = 253;

/// The reporting host and the reported Gateway.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, CustomResource, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "projectsesame.io",
    version = "v1alpha1",
    kind = "GatewayAgent",
    plural = "gatewayagents",
    shortname = "gwagent",
    namespaced,
    status = "GatewayAgentStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Gateway","type":"string","jsonPath":".spec.gateway"}"#,
    printcolumn = r#"{"name":"Host","type":"string","jsonPath":".spec.host"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Wanted","type":"string","jsonPath":".status.wantedRevision"}"#,
    printcolumn = r#"{"name":"Applied","type":"string","jsonPath":".status.appliedRevision"}"#,
    printcolumn = r#"{"name":"Envoy","type":"string","jsonPath":".status.envoyVersion"}"#,
    printcolumn = r#"{"name":"Zone","type":"string","jsonPath":".status.zone"}"#,
    printcolumn = r#"{"name":"Addresses","type":"string","jsonPath":".status.addresses","priority":1}"#,
    printcolumn = r#"{"name":"Ports","type":"string","jsonPath":".status.openPorts","priority":1}"#,
    printcolumn = r#"{"name":"Agent","type":"string","jsonPath":".status.agentVersion","priority":1}"#,
    printcolumn = r#"{"name":"Cores","type":"integer","jsonPath":".status.cores","priority":1}"#,
    printcolumn = r#"{"name":"MiB","type":"integer","jsonPath":".status.memoryMiB","priority":1}"#,
    printcolumn = r#"{"name":"Certificate-Expiry","type":"date","jsonPath":".status.nextCertificateExpiry"}"#,
    printcolumn = r#"{"name":"Heartbeat","type":"date","jsonPath":".status.heartbeat"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct GatewayAgentSpec {
    /// Reported Gateway, as `namespace/name`.
    #[schemars(length(max = 317), regex(pattern = r"^[-a-z0-9]+/[-.a-z0-9]+$"))]
    pub gateway: String,
    /// Name under which the host reports.
    #[schemars(
        length(max = 253),
        regex(pattern = r"^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$")
    )]
    pub host: String,
    /// Fleet that the host belongs to.
    #[schemars(length(max = 63))]
    pub fleet: String,
}

/// The host's report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct GatewayAgentStatus {
    /// State of the Gateway on this host.
    #[schemars(schema_with = "state_schema")]
    pub state: AgentState,
    /// Explanation of the state, if needed.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = MAX_TEXT))]
    pub message: String,
    /// First 12 digits of the revision of the last manifest that the agent read.
    #[schemars(length(max = MAX_WORD))]
    pub wanted_revision: String,
    /// First 12 digits of the revision that Envoy has accepted, possibly without rejected parts.
    #[schemars(length(max = MAX_WORD))]
    pub applied_revision: String,
    /// Time at which Envoy accepted the applied revision.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<Timestamp>,
    /// Version of the agent's Envoy.
    #[schemars(length(max = MAX_WORD))]
    pub envoy_version: String,
    /// Version of the agent.
    #[schemars(length(max = MAX_WORD))]
    pub agent_version: String,
    /// Zone of the host, as named by its operator.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = MAX_WORD))]
    pub zone: String,
    /// Number of CPU cores that Envoy may use on the host.
    pub cores: u32,
    /// Memory that Envoy may use on the host, in MiB.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    /// IP addresses on which the Gateway is served.
    #[schemars(length(max = MAX_REPORTED_ADDRESSES), inner(length(max = MAX_WORD)))]
    pub addresses: Vec<String>,
    /// Ports that Envoy has opened for the Gateway, such as `TCP/443`. If the host maps ports,
    /// these are the host's ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_ENTRIES), inner(length(max = MAX_WORD)))]
    pub open_ports: Vec<String>,
    /// True while the host is being drained: it still serves, but new clients should use other
    /// hosts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// Addresses in the Gateway's `spec.addresses` that the host does not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_ENTRIES))]
    pub unusable_addresses: Vec<UnusableAddress>,
    /// Listeners that are not open, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_ENTRIES))]
    pub refused_listeners: Vec<RefusedListener>,
    /// Listeners that do not present a certificate to new connections, although Envoy has accepted
    /// the certificate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_ENTRIES))]
    pub unshown_certificates: Vec<UnshownCertificate>,
    /// Routes that Envoy rejects in whole or in part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_ENTRIES))]
    pub refused_routes: Vec<RefusedRoute>,
    /// Objects and parts of objects that Envoy rejects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_ENTRIES))]
    pub refused: Vec<RefusedObject>,
    /// Earliest expiry of the served certificates.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_certificate_expiry: Option<Timestamp>,
    /// Interval between reports while nothing changes, in seconds; 60 if unset. A host counts as
    /// lost after one and a half intervals at the earliest.
    #[schemars(range(min = 10, max = MAX_REPORT_SECONDS))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_seconds: Option<u32>,
    /// Traffic during the last 10 seconds or more. Reported only during a staged rollout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<IntervalTraffic>,
    /// Number of Envoy processes that died during the staged rollout since Envoy serves its revision
    /// or, if that is later, since the rollout began.
    #[serde(skip_serializing_if = "is_zero")]
    pub envoy_deaths: u64,
    /// True while the host holds a change until an operator approves it, or is rolled back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// Time at which this report was last written.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Timestamp>,
}

fn state_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": AgentState::ALL })
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde requires a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// HTTP requests and TLS handshakes in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct IntervalTraffic {
    /// Number of completed requests.
    pub requests: u64,
    /// Number of responses with status 5xx.
    pub errors: u64,
    /// Number of requests to backends that timed out, or that the backend aborted. Unset if the agent
    /// does not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resets: Option<u64>,
    /// Number of TLS handshakes with clients, including failed ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub handshakes: u64,
    /// Number of failed TLS handshakes with clients.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed_handshakes: u64,
}

impl From<HostTraffic> for IntervalTraffic {
    fn from(counted: HostTraffic) -> Self {
        let HostTraffic {
            requests,
            errors,
            resets,
            handshakes,
            failed_handshakes,
        } = counted;
        Self {
            requests,
            errors,
            resets,
            handshakes,
            failed_handshakes,
        }
    }
}

impl From<IntervalTraffic> for HostTraffic {
    fn from(reported: IntervalTraffic) -> Self {
        let IntervalTraffic {
            requests,
            errors,
            resets,
            handshakes,
            failed_handshakes,
        } = reported;
        Self {
            requests,
            errors,
            resets,
            handshakes,
            failed_handshakes,
        }
    }
}

/// An address in the Gateway's `spec.addresses` that the host does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnusableAddress {
    /// The address.
    #[schemars(length(max = MAX_WORD))]
    pub address: String,
    /// Why the address cannot be used.
    #[schemars(length(max = MAX_TEXT))]
    pub reason: String,
}

/// A listener that is not open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedListener {
    /// Name of the listener in the snapshot: `Gateway/namespace/name/listeners/http`.
    #[schemars(length(max = MAX_NAME))]
    pub name: String,
    /// Why the listener is not open.
    #[schemars(length(max = MAX_TEXT))]
    pub reason: String,
}

/// A listener that does not present a certificate to new connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnshownCertificate {
    /// Name of the listener in the snapshot: `Gateway/namespace/name/listeners/https`.
    #[schemars(length(max = MAX_NAME))]
    pub listener: String,
    /// Outcome of a TLS handshake with the listener.
    #[schemars(length(max = MAX_TEXT))]
    pub reason: String,
}

/// A route that Envoy rejects in whole or in part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RefusedRoute {
    /// Name of the route: `HTTPRoute/namespace/name`.
    #[schemars(length(max = MAX_NAME))]
    pub route: String,
    /// Rules that do not work as specified.
    #[schemars(length(max = MAX_RULES))]
    pub rules: Vec<RefusedRule>,
    /// Rules with a backend that Envoy rejects.
    #[schemars(length(max = MAX_RULES))]
    pub backends: Vec<RefusedRule>,
    /// True if any part of the route works.
    pub works: bool,
}

/// A rule that does not work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedRule {
    /// Index of the rule, starting at 0.
    pub rule: usize,
    /// Why the rule does not work, with Envoy's message.
    #[schemars(length(max = MAX_TEXT))]
    pub reason: String,
}

/// An object or part of an object that Envoy rejects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedObject {
    /// Name of the object or part in the snapshot, such as
    /// `HTTPRoute/namespace/name/rules/0/matches/1`.
    #[schemars(length(max = MAX_NAME))]
    pub object: String,
    /// Effect of the rejection on traffic.
    #[schemars(length(max = MAX_TEXT))]
    pub effect: String,
    /// Reason for the rejection, as reported by Envoy.
    #[schemars(length(max = MAX_TEXT))]
    pub envoy_words: String,
    /// Time at which the rejection was detected.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sesame_kinds::decode::from_value;

    use super::*;

    #[test]
    fn null_report_fields_count_as_absent() {
        let spec = json!({"gateway": "shop/edge", "host": "h", "fleet": "default"});
        let agent = |status: Value| {
            from_value::<GatewayAgent>(json!({
                "apiVersion": "projectsesame.io/v1alpha1", "kind": "GatewayAgent",
                "metadata": {"name": "a", "labels": null, "annotations": null, "ownerReferences": null},
                "spec": spec.clone(), "status": status,
            }))
            .expect("a GatewayAgent")
        };
        assert_eq!(agent(Value::Null).status, None);
        let whole = serde_json::to_value(GatewayAgentStatus::default()).expect("JSON");
        let fields = whole.as_object().expect("fields").keys();
        let listed = [
            "openPorts",
            "draining",
            "unusableAddresses",
            "refusedListeners",
            "unshownCertificates",
            "refusedRoutes",
            "refused",
        ];
        for field in fields.map(String::as_str).chain(listed) {
            let mut null = json!({});
            null[field] = Value::Null;
            assert_eq!(
                agent(null).status,
                Some(GatewayAgentStatus::default()),
                "{field}"
            );
        }
    }
}
