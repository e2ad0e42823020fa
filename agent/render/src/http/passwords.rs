//! Passwords that the agent checks, because Envoy supports only SHA-1 digests.
//!
//! One request to the agent's Unix socket checks all sets of users of a chain. It names each set by
//! the digest of its key pair, so Envoy's configuration determines the set, and a rotation cannot
//! mix two versions. Without the agent, requests are rejected.

use std::path::Path;

use envoy_types::pb::envoy::config::cluster::v3::{
    CircuitBreakers, Cluster, circuit_breakers::Thresholds,
};
use envoy_types::pb::envoy::config::core::v3::{
    Address, ApiVersion, BackoffStrategy, HeaderValue, HttpUri, Pipe, RetryPolicy,
    TypedExtensionConfig, address, http_uri,
};
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
};
use envoy_types::pb::envoy::extensions::filters::http::ext_authz::v3::{
    AuthorizationRequest, AuthorizationResponse, ExtAuthz, HttpService, ext_authz::Services,
};
use envoy_types::pb::envoy::r#type::matcher::v3::ListStringMatcher;
use envoy_types::pb::envoy::r#type::v3::{HttpStatus, StatusCode};
use envoy_types::util::pack_any;
use sesame_proto::schema::shared_filter::Kind;
use sesame_proto::schema::{AddressFilter, CredentialCheck, SharedFilter, credential_check};

use super::composite::filter;
use super::exempt_clients::ExemptClients;
use crate::context::RenderOptions;
use crate::layout::{PASSWORDS, password_socket};
use crate::rendered::Resource;
use crate::wrappers;

/// Maximum time for a check, including the time for which it waits for a starting agent.
const TIMEOUT_MS: u64 = 10_000;
/// Retries only until the agent listens again. The agent's own responses are final.
const RETRY_ON: &str = "connect-failure,refused-stream,reset";
const RETRIES: u32 = 120;
const FIRST_PAUSE_MS: u64 = 25;
const LONGEST_PAUSE_MS: u64 = 250;
/// Fewer than the agent accepts, so that two Envoy processes can connect during a hot restart.
const MAX_CONNECTIONS: usize = 128;
const MAX_WAITING: u32 = 4_096;

/// The only header that the agent gets in addition to `authorization`.
const CLIENT: &str = "x-client-address";

/// A set of users that the agent checks.
pub(crate) struct AgentUsers {
    /// Digest of the key pair with the users.
    pub(crate) digest: String,
    pub(crate) username_header: String,
    /// Clients whose passwords are not checked.
    pub(crate) exempt: Option<AddressFilter>,
}

/// Returns true if one of the filters may need the agent. The cluster stays when digests change
/// from SHA-1 to another format, because filters change before clusters.
pub(crate) fn are_checked(shared: &[SharedFilter]) -> bool {
    let is_basic = |check: &CredentialCheck| {
        let kind = &check.kind;
        matches!(kind, Some(credential_check::Kind::Basic(_)))
    };
    let mut usable = SharedFilter::usable(shared).iter();
    usable.any(
        |it| matches!(&it.kind, Some(Kind::Credentials(set)) if set.checks.iter().any(is_basic)),
    )
}

/// Must be the last filters of a chain. At most one of them applies to a request.
pub(crate) fn checking(sets: &[AgentUsers]) -> Result<Vec<TypedExtensionConfig>, String> {
    let (exempting, others): (Vec<_>, Vec<_>) = sets.iter().partition(|set| set.exempt.is_some());
    let mut exempt = exempting.iter().filter_map(|set| set.exempt.as_ref());
    let Some(clients) = exempt.next() else {
        return Ok(asking(&others).into_iter().collect());
    };
    if exempt.any(|other| other != clients) {
        return Err("its checks exempt different clients".to_owned());
    }
    let clients = ExemptClients::read(clients)?;
    let all: Vec<&AgentUsers> = sets.iter().collect();
    let of_exempt = asking(&others).map(|filter| clients.only(filter));
    let of_others = asking(&all).map(|filter| clients.bypass(filter));
    Ok(of_others.into_iter().chain(of_exempt).collect())
}

/// Returns `None` if there is nothing to check.
fn asking(sets: &[&AgentUsers]) -> Option<TypedExtensionConfig> {
    if sets.is_empty() {
        return None;
    }
    let config = ExtAuthz {
        services: Some(Services::HttpService(service(sets))),
        transport_api_version: ApiVersion::V3.into(),
        status_on_error: Some(HttpStatus {
            code: StatusCode::ServiceUnavailable.into(),
        }),
        validate_mutations: true,
        ..Default::default()
    };
    Some(filter("envoy.filters.http.ext_authz", pack_any(config)))
}

fn service(sets: &[&AgentUsers]) -> HttpService {
    let segments = sets.iter().map(|set| {
        let AgentUsers {
            digest,
            username_header,
            exempt: _,
        } = set;
        match username_header.as_str() {
            "" => format!("/{digest}"),
            header => format!("/{digest}:{header}"),
        }
    });
    let set_headers = sets.iter().map(|set| set.username_header.as_str());
    let set_headers = set_headers.filter(|header| !header.is_empty());
    let patterns: Vec<_> = set_headers.map(wrappers::exact).collect();
    HttpService {
        server_uri: Some(HttpUri {
            uri: format!("http://{PASSWORDS}"),
            timeout: wrappers::milliseconds(TIMEOUT_MS),
            http_upstream_type: Some(http_uri::HttpUpstreamType::Cluster(PASSWORDS.to_owned())),
        }),
        path_override: segments.collect(),
        authorization_request: Some(AuthorizationRequest {
            headers_to_add: vec![HeaderValue {
                key: CLIENT.to_owned(),
                value: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%".to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        }),
        authorization_response: Some(AuthorizationResponse {
            allowed_upstream_headers: (!patterns.is_empty())
                .then_some(ListStringMatcher { patterns }),
            // Without a list, the client would get all of the agent's headers.
            allowed_client_headers: Some(ListStringMatcher {
                patterns: vec![wrappers::exact("www-authenticate")],
            }),
            ..Default::default()
        }),
        retry_policy: Some(RetryPolicy {
            retry_back_off: Some(BackoffStrategy {
                base_interval: wrappers::milliseconds(FIRST_PAUSE_MS),
                max_interval: wrappers::milliseconds(LONGEST_PAUSE_MS),
            }),
            num_retries: wrappers::uint32(RETRIES),
            retry_on: RETRY_ON.to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Returns the cluster that reaches the agent.
pub(crate) fn cluster(options: &RenderOptions) -> Resource {
    let socket = password_socket(&options.admin_socket);
    // These connections belong to no backend's share, so they must fit into the reserve, of which
    // one third is for watches.
    let connections = MAX_CONNECTIONS.min(options.limits.watched.max(1));
    let connections = u32::try_from(connections).unwrap_or(u32::MAX);
    let cluster = Cluster {
        name: PASSWORDS.to_owned(),
        connect_timeout: wrappers::milliseconds(1_000),
        circuit_breakers: Some(CircuitBreakers {
            thresholds: vec![Thresholds {
                max_connections: wrappers::uint32(connections),
                max_pending_requests: wrappers::uint32(MAX_WAITING),
                max_requests: wrappers::uint32(MAX_WAITING),
                // All waiting checks are retried while the agent starts.
                max_retries: wrappers::uint32(MAX_WAITING),
                ..Default::default()
            }],
            ..Default::default()
        }),
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: PASSWORDS.to_owned(),
            endpoints: vec![LocalityLbEndpoints {
                lb_endpoints: vec![LbEndpoint {
                    host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(Endpoint {
                        address: Some(pipe(&socket)),
                        ..Default::default()
                    })),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    };
    Resource::new(PASSWORDS, &cluster)
}

fn pipe(path: &Path) -> Address {
    Address {
        address: Some(address::Address::Pipe(Pipe {
            path: path.to_string_lossy().into_owned(),
            mode: 0,
        })),
    }
}
