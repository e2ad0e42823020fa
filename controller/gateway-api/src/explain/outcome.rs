//! The explanation as a data structure. Scripts read it as JSON, so fields must not be removed or
//! renamed.

use serde::{Deserialize, Serialize};
use sesame_proto::provenance::{ObjectPart, Provenance};
use sesame_proto::schema::Snapshot;

use super::bounds;
use super::request::ExplainRequest;

/// The response to one request, and the steps that lead to it, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Gateway, as `Gateway/namespace/name`.
    pub gateway: String,
    /// The explained request.
    pub request: ExplainRequest,
    /// Listener that receives the connection.
    pub listener: Option<ExplainedListener>,
    /// Path and query after normalization, as compared with routes.
    pub path: Option<String>,
    /// Virtual host of the request.
    pub virtual_host: Option<ExplainedHost>,
    /// Routes of that virtual host, in the order in which Envoy tries them.
    pub candidates: Vec<ExplainedCandidate>,
    /// Route that handles the request.
    pub route: Option<ExplainedRoute>,
    /// Effects of the route's filters on this request, in the order in which Envoy applies them.
    pub filters: Vec<ExplainedFilter>,
    /// Response.
    pub outcome: ExplainedOutcome,
    /// Notes from callers that know more than the snapshot.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Number of entries omitted from the lists above.
    #[serde(default, skip_serializing_if = "Omitted::is_empty")]
    pub omitted: Omitted,
}

impl Explanation {
    /// Returns an explanation of `request` without any steps.
    pub(super) fn of(snapshot: &Snapshot, request: &ExplainRequest) -> Self {
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

    /// Adds notes. Counts the notes beyond the limit as omitted.
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

/// Number of entries omitted from each list, to limit the size of an explanation.
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
    /// Accepted names in a backend's certificate.
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
    reason = "serde hands over a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The listener that receives a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedListener {
    /// Name, as `Gateway/namespace/name/listeners/http`.
    pub name: String,
    /// `HTTP`, `HTTPS`, `TLS` or `TCP`.
    pub protocol: String,
    /// Hostname; empty if the listener accepts all hosts.
    pub hostname: String,
    /// Why this listener receives the connection.
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

/// A route in the virtual host. It may come before or after the route that handles the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedCandidate {
    /// Name, as `HTTPRoute/namespace/name/rules/0/matches/0`.
    pub route: String,
    /// Match of the route, as text.
    pub condition: String,
    /// Verdict on the route for this request.
    pub verdict: CandidateVerdict,
    /// True if the request's path matches, whether or not the other conditions do.
    pub path_matches: bool,
    /// Reasons for the verdict. Empty for the route that handles the request.
    pub reasons: Vec<String>,
}

/// The verdict on a route for this request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CandidateVerdict {
    /// The request does not match the route.
    NoMatch,
    /// The route handles the request.
    Taken,
    /// The request matches the route, but an earlier route handles it.
    TooLate,
}

/// The route that handles a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedRoute {
    /// Name, as `HTTPRoute/namespace/name/rules/0/matches/0`.
    pub name: String,
    /// Object, as `HTTPRoute/namespace/name`.
    pub object: String,
    /// 0-based index of the rule.
    pub rule: usize,
    /// 0-based index of the match in its rule. `None` for a route for connections.
    #[serde(rename = "match", default)]
    pub match_index: Option<usize>,
    /// True if the request is a CORS preflight for another request that the route would handle.
    #[serde(default)]
    pub preflight: bool,
}

impl ExplainedRoute {
    /// Parses the name of a route. Returns `None` if the name contains no rule.
    pub(super) fn of(name: &str, preflight: bool) -> Option<Self> {
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

/// The effect of one filter on the request or its response.
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
    /// The connection is rejected, or closed without a response.
    Refused {
        /// Cause, as text.
        reason: String,
    },
    /// The proxy itself responds.
    Answered {
        /// Status of the response.
        status: u32,
        /// gRPC status that a gRPC client gets, with HTTP status 200.
        grpc_status: Option<u32>,
        /// Cause, as text.
        reason: String,
    },
    /// The proxy redirects the client.
    Redirected {
        /// Status of the response.
        status: u32,
        /// gRPC status that a gRPC client gets, with HTTP status 200.
        grpc_status: Option<u32>,
        /// `Location` header of the response.
        location: String,
        /// Cause, as text.
        reason: String,
    },
    /// A backend responds.
    Forwarded {
        /// Backends, each with its share.
        backends: Vec<ExplainedBackend>,
        /// Value of the `Host` header that backends receive.
        host: String,
        /// Path and query that the backends receive.
        path: String,
        /// Timeout in milliseconds for the request, including all retries. `None` for no limit.
        request_timeout_ms: Option<u64>,
        /// Timeout in milliseconds for one attempt. `None` for no limit.
        backend_timeout_ms: Option<u64>,
        /// Retries, as text.
        retries: String,
    },
    /// A backend receives the bytes of the connection.
    Connected {
        /// Backends, each with its share of connections.
        backends: Vec<ExplainedBackend>,
    },
}

/// One backend of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedBackend {
    /// Name, as `Service/namespace/name/80`. `None` if the reference is invalid.
    pub backend: Option<String>,
    /// Weight, relative to the sum of the weights of all backends.
    pub weight: u32,
    /// Why requests in this backend's share are rejected, as text.
    pub refused: Option<String>,
    /// Protocol of the backend.
    pub protocol: Option<String>,
    /// TLS settings for connections to the backend. `None` for plaintext.
    pub tls: Option<ExplainedTls>,
    /// Endpoints that may receive the request.
    pub endpoints: Vec<String>,
    /// Effects of this backend's own filters.
    pub filters: Vec<ExplainedFilter>,
    /// Number of entries omitted from the lists above.
    #[serde(default, skip_serializing_if = "Omitted::is_empty")]
    pub omitted: Omitted,
}

/// TLS settings for connections to a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedTls {
    /// Server name that Envoy sends.
    pub sni: String,
    /// Names of which the backend's certificate must contain at least one.
    pub names: Vec<String>,
    /// Name of the trust bundle for validating the backend. Empty for the system's CAs.
    pub authorities: String,
}
