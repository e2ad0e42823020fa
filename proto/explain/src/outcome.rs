//! The explanation as data. Scripts read it as JSON, so never remove or rename fields.

use serde::{Deserialize, Serialize};
use sesame_proto::provenance::{ObjectPart, Provenance};
use sesame_proto::schema::Snapshot;

use super::bounds;
use super::request::ExplainRequest;

/// The response to a request, and the steps that lead to the response, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `Gateway/namespace/name`.
    pub gateway: String,
    /// The request.
    pub request: ExplainRequest,
    /// The listener.
    pub listener: Option<ExplainedListener>,
    /// Path and query after normalization.
    pub path: Option<String>,
    /// The virtual host.
    pub virtual_host: Option<ExplainedHost>,
    /// Routes of the virtual host, in Envoy's order.
    pub candidates: Vec<ExplainedCandidate>,
    /// Route that handles the request.
    pub route: Option<ExplainedRoute>,
    /// Effects of the route's filters, in Envoy's order.
    pub filters: Vec<ExplainedFilter>,
    /// The response.
    pub outcome: ExplainedOutcome,
    /// Notes that callers added.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Entries omitted from the lists above.
    #[serde(default, skip_serializing_if = "Omitted::is_empty")]
    pub omitted: Omitted,
}

impl Explanation {
    pub(super) fn new(snapshot: &Snapshot, request: &ExplainRequest) -> Self {
        Self {
            gateway: snapshot.gateway.clone(),
            request: request.clone(),
            listener: None,
            path: None,
            virtual_host: None,
            candidates: Vec::new(),
            route: None,
            filters: Vec::new(),
            outcome: ExplainedOutcome::Refused {
                reason: String::new(),
            },
            notes: Vec::new(),
            omitted: Omitted::default(),
        }
    }

    /// Adds notes up to the limit and counts the rest as omitted.
    pub fn add_notes(&mut self, notes: impl IntoIterator<Item = String>) {
        bounds::add_notes(self, notes);
    }

    /// Returns the names of the listener, the route and the backends.
    pub fn parts(&self) -> Vec<&str> {
        let backends = match &self.outcome {
            ExplainedOutcome::Forwarded { backends, .. }
            | ExplainedOutcome::Connected { backends } => backends.as_slice(),
            ExplainedOutcome::Refused { .. }
            | ExplainedOutcome::Answered { .. }
            | ExplainedOutcome::Redirected { .. } => &[],
        };
        let backends = backends.iter().filter_map(|it| it.backend.as_deref());
        let listener = self.listener.iter().map(|it| it.name.as_str());
        let route = self.route.iter().map(|it| it.name.as_str());
        listener.chain(route).chain(backends).collect()
    }
}

/// Number of entries omitted from each list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Omitted {
    /// Routes. The route that handles the request is never omitted.
    #[serde(skip_serializing_if = "is_zero")]
    pub candidates: usize,
    /// Filters.
    #[serde(skip_serializing_if = "is_zero")]
    pub filters: usize,
    /// Backends.
    #[serde(skip_serializing_if = "is_zero")]
    pub backends: usize,
    /// Endpoints of a backend.
    #[serde(skip_serializing_if = "is_zero")]
    pub endpoints: usize,
    /// Names that are accepted in a backend's certificate.
    #[serde(skip_serializing_if = "is_zero")]
    pub names: usize,
    /// Notes.
    #[serde(skip_serializing_if = "is_zero")]
    pub notes: usize,
}

impl Omitted {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The listener of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedListener {
    /// `Gateway/namespace/name/listeners/http`.
    pub name: String,
    /// `HTTP`, `HTTPS`, `TLS` or `TCP`.
    pub protocol: String,
    /// Hostname; empty for all hosts.
    pub hostname: String,
    /// Why this listener was selected.
    pub reason: String,
}

/// The virtual host of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedHost {
    /// Name of the route table.
    pub route_table: String,
    /// Domain: exact, `*.suffix` or `*`.
    pub domain: String,
}

/// A route of the virtual host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedCandidate {
    /// `HTTPRoute/namespace/name/rules/0/matches/0`.
    pub route: String,
    /// The match as text.
    pub condition: String,
    /// The verdict.
    pub verdict: CandidateVerdict,
    /// True if the path matches, even if other conditions do not.
    pub path_matches: bool,
    /// Reasons for the verdict. Empty for [`CandidateVerdict::Taken`].
    pub reasons: Vec<String>,
}

/// The verdict on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CandidateVerdict {
    /// The request does not match the route.
    NoMatch,
    /// The route handles the request.
    Taken,
    /// An earlier route handles the request.
    TooLate,
}

/// The route that handles a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedRoute {
    /// `HTTPRoute/namespace/name/rules/0/matches/0`.
    pub name: String,
    /// `HTTPRoute/namespace/name`.
    pub object: String,
    /// 0-based index of the rule.
    pub rule: usize,
    /// 0-based index of the match. `None` for connections.
    #[serde(rename = "match", default)]
    pub match_index: Option<usize>,
    /// True if the request is a CORS preflight for a request that the route would handle.
    #[serde(default)]
    pub preflight: bool,
}

impl ExplainedRoute {
    /// Returns `None` if the name contains no rule.
    pub(super) fn parse(name: &str, preflight: bool) -> Option<Self> {
        let provenance = Provenance::parse(name).ok()?;
        let match_index = match provenance.part {
            ObjectPart::Match { index, .. } => Some(index),
            _ => None,
        };
        Some(Self {
            name: name.to_owned(),
            object: provenance.object().to_string(),
            rule: provenance.rule()?,
            match_index,
            preflight,
        })
    }
}

/// The effect of one filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedFilter {
    /// Name of the filter in the Gateway API.
    pub filter: String,
    /// Effect, as text.
    pub effect: String,
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum ExplainedOutcome {
    /// The connection is closed without a response.
    Refused {
        /// Cause.
        reason: String,
    },
    /// Envoy responds.
    Answered {
        /// HTTP status.
        status: u32,
        /// Status for gRPC clients, which get HTTP status 200.
        grpc_status: Option<u32>,
        /// Cause.
        reason: String,
    },
    /// Envoy redirects the client.
    Redirected {
        /// HTTP status.
        status: u32,
        /// Status for gRPC clients, which get HTTP status 200.
        grpc_status: Option<u32>,
        /// `Location` header.
        location: String,
        /// Cause.
        reason: String,
    },
    /// A backend responds.
    Forwarded {
        /// Backends with their shares of the traffic.
        backends: Vec<ExplainedBackend>,
        /// `Host` header that backends receive.
        host: String,
        /// Path and query that backends receive.
        path: String,
        /// Timeout including retries. `None` for no limit.
        request_timeout_ms: Option<u64>,
        /// Timeout per attempt. `None` for no limit.
        backend_timeout_ms: Option<u64>,
        /// Retries as text.
        retries: String,
    },
    /// A backend receives the connection's bytes.
    Connected {
        /// Backends with their shares of the traffic.
        backends: Vec<ExplainedBackend>,
    },
}

/// A backend of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedBackend {
    /// `Service/namespace/name/80`. `None` if the reference is invalid.
    pub backend: Option<String>,
    /// Weight relative to the sum of all weights.
    pub weight: u32,
    /// Why requests to this backend are rejected.
    pub refused: Option<String>,
    /// Protocol.
    pub protocol: Option<String>,
    /// `None` for plaintext.
    pub tls: Option<ExplainedTls>,
    /// Load balancing. `None` for round robin across all endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balancing: Option<String>,
    /// Endpoints that may receive the request.
    pub endpoints: Vec<String>,
    /// Backend that gets the requests while `endpoints` is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Effects of the backend's own filters.
    pub filters: Vec<ExplainedFilter>,
    /// Entries omitted from the lists above.
    #[serde(default, skip_serializing_if = "Omitted::is_empty")]
    pub omitted: Omitted,
}

/// TLS settings for connections to a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedTls {
    /// Server name.
    pub sni: String,
    /// The certificate must contain one of these names.
    pub names: Vec<String>,
    /// Trust bundle. Empty for the system's CAs.
    pub authorities: String,
    /// True if any certificate is accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unverified: bool,
}
