//! A request after Envoy's normalization and validation.

use std::net::IpAddr;

use sesame_proto::schema::Edge;
use sesame_proto::schema::edge::Underscores;

use super::canonical_path::{CanonicalPath, canonical};
use super::outcome::ExplainedOutcome;
use super::request::{ExplainRequest, HeaderField, UrlScheme};

/// Envoy removes these headers because they only describe the client's connection.
const CONNECTION_HEADERS: [&str; 6] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

#[derive(Clone, Debug)]
pub(super) struct Compared {
    pub(super) scheme: UrlScheme,
    pub(super) method: String,
    /// Without a trailing dot after the hostname.
    pub(super) authority: String,
    /// Lower case, without the port.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) path: String,
    /// Includes the `?`.
    pub(super) query: String,
    pub(super) headers: Vec<HeaderField>,
    pub(super) grpc: bool,
    /// True for gRPC-Web, which some routes translate to gRPC.
    pub(super) grpc_web: bool,
    pub(super) client: Option<IpAddr>,
    /// True if explanations must not show header values.
    pub(super) redacted: bool,
}

pub(super) enum Prepared {
    Compared(Compared),
    /// Envoy responds before it tries any route.
    Answered {
        path: Option<String>,
        outcome: ExplainedOutcome,
    },
}

pub(super) enum HeaderValue {
    Absent,
    Is(Vec<String>),
    /// Envoy sets a value that cannot be predicted.
    Unknown,
}

pub(super) fn prepare(request: &ExplainRequest, edge: Edge) -> Prepared {
    let mut headers = request.headers.clone();
    let underscored = headers.iter().position(|it| it.name.contains('_'));
    let rejected = match edge.header_underscores() {
        Underscores::Allow => None,
        Underscores::DropHeader => {
            headers.retain(|it| !it.name.contains('_'));
            None
        }
        Underscores::RejectRequest => underscored.and_then(|at| headers.get(at)),
    };
    if let Some(HeaderField { name, .. }) = rejected {
        let reason = format!(
            "the name of header {name:?} has an underscore, which this Gateway rejects (header-underscores); over HTTP/2 \
             the stream is reset"
        );
        return answered(request, None, 400, reason);
    }
    let is_upgrade = headers.iter().any(|it| is_forwarded_upgrade(it, edge));
    if edge.reject_other_upgrades && !is_upgrade && headers.iter().any(|it| it.name == "upgrade") {
        let reason = "this Gateway rejects the upgrade (other-upgrades)".to_owned();
        return answered(request, None, 403, reason);
    }
    headers.retain(|it| !CONNECTION_HEADERS.contains(&it.name.as_str()) || is_upgrade);
    headers.retain(|it| it.name != "x-forwarded-proto");
    headers.push(HeaderField {
        name: "x-forwarded-proto".to_owned(),
        value: request.scheme.as_str().to_owned(),
    });
    match canonical(&request.path, edge) {
        CanonicalPath::Rejected(reason) => answered(request, None, 400, reason.to_owned()),
        // gRPC clients do not follow redirects, so Envoy rejects the request.
        CanonicalPath::Redirected(_) if is_grpc(request) => {
            let reason = "the path of a gRPC request has an escaped slash (%2F or %5C)";
            answered(request, None, 400, reason.to_owned())
        }
        CanonicalPath::Redirected(location) => Prepared::Answered {
            path: Some(location.clone()),
            outcome: ExplainedOutcome::Redirected {
                status: 307,
                grpc_status: None,
                location,
                reason: "the path has an escaped slash (%2F or %5C): the client is redirected to \
                    the unescaped path"
                    .to_owned(),
            },
        },
        CanonicalPath::Compared(canonical) => {
            if let Some(reason) = malformed(&request.authority, edge) {
                return answered(request, Some(canonical), 400, reason);
            }
            let at = canonical.find('?').unwrap_or(canonical.len());
            let (path, query) = canonical.split_at(at);
            Prepared::Compared(Compared {
                scheme: request.scheme,
                method: request.method.clone(),
                authority: without_dot(&request.authority),
                host: host_of(&request.authority),
                port: request.port,
                path: path.to_owned(),
                query: query.to_owned(),
                headers,
                grpc: is_grpc(request),
                grpc_web: is_grpc_web(request),
                client: request.client,
                redacted: false,
            })
        }
    }
}

impl Compared {
    pub(super) fn translated(&self) -> Self {
        Self {
            grpc: true,
            ..self.clone()
        }
    }

    /// `name` is case-insensitive.
    pub(super) fn header(&self, name: &str) -> HeaderValue {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "host" => return HeaderValue::Is(vec![self.authority.clone()]),
            "x-forwarded-for" | "x-request-id" | "x-envoy-external-address" => {
                return HeaderValue::Unknown;
            }
            // Envoy removes all other `x-envoy-` headers that clients send.
            _ if name.starts_with("x-envoy-") => return HeaderValue::Absent,
            _ => {}
        }
        let values = self.headers.iter().filter(|it| it.name == name);
        let values: Vec<String> = values.map(|it| it.value.clone()).collect();
        if values.is_empty() {
            HeaderValue::Absent
        } else {
            HeaderValue::Is(values)
        }
    }

    /// Returns `None` if the header is absent or empty.
    pub(super) fn filled(&self, name: &str) -> Option<String> {
        match self.header(name) {
            HeaderValue::Is(values) => Some(values.join(",")).filter(|it| !it.is_empty()),
            HeaderValue::Absent | HeaderValue::Unknown => None,
        }
    }

    /// Returns a header's value as explanations may show it.
    pub(super) fn shown(&self, value: String) -> String {
        if self.redacted {
            "…".to_owned()
        } else {
            value
        }
    }

    /// Returns the first value, still percent-encoded.
    pub(super) fn query_param(&self, name: &str) -> Option<&str> {
        let query = self.query.strip_prefix('?')?;
        let mut params = query
            .split('&')
            .map(|it| it.split_once('=').unwrap_or((it, "")));
        params.find_map(|(key, value)| (key == name).then_some(value))
    }

    pub(super) fn path_and_query(&self) -> String {
        format!("{}{}", self.path, self.query)
    }

    pub(super) fn answered(&self, status: u32, reason: String) -> ExplainedOutcome {
        ExplainedOutcome::Answered {
            status,
            grpc_status: self.grpc_status(status),
            reason,
        }
    }

    /// Returns `None` unless the client uses gRPC.
    pub(super) fn grpc_status(&self, status: u32) -> Option<u32> {
        self.grpc.then(|| grpc_status(status))
    }
}

fn answered(
    request: &ExplainRequest,
    path: Option<String>,
    status: u32,
    reason: String,
) -> Prepared {
    let outcome = ExplainedOutcome::Answered {
        status,
        grpc_status: is_grpc(request).then(|| grpc_status(status)),
        reason,
    };
    Prepared::Answered { path, outcome }
}

/// Maps an HTTP status to a gRPC status as Envoy does.
fn grpc_status(status: u32) -> u32 {
    match status {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502 | 503 | 504 => 14,
        _ => 2,
    }
}

/// Excludes gRPC-Web, as Envoy does.
fn is_grpc(request: &ExplainRequest) -> bool {
    grpc_subtype(request).is_some_and(|rest| rest.is_empty() || rest.starts_with('+'))
}

fn is_grpc_web(request: &ExplainRequest) -> bool {
    grpc_subtype(request)
        .and_then(|rest| rest.strip_prefix("-web"))
        .map(|rest| rest.strip_prefix("-text").unwrap_or(rest))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
}

/// Returns the rest of the media type after `application/grpc`.
fn grpc_subtype(request: &ExplainRequest) -> Option<&str> {
    let mut headers = request.headers.iter();
    let content_type = headers.find(|it| it.name == "content-type")?;
    content_type.value.strip_prefix("application/grpc")
}

/// Envoy ignores other upgrades.
fn is_forwarded_upgrade(HeaderField { name, value }: &HeaderField, edge: Edge) -> bool {
    let forwarded = |protocol: &str| match protocol.trim().to_ascii_lowercase().as_str() {
        "websocket" => true,
        "spdy/3.1" => edge.upgrades_to_spdy,
        "tcp" => edge.upgrades_to_tcp,
        _ => false,
    };
    name == "upgrade" && value.split(',').any(forwarded)
}

pub(super) fn host_of(authority: &str) -> String {
    without_port(&without_dot(authority)).to_ascii_lowercase()
}

fn without_dot(authority: &str) -> String {
    let host = without_port(authority);
    let port = authority.get(host.len()..).unwrap_or_default();
    format!("{}{port}", host.strip_suffix('.').unwrap_or(host))
}

/// Returns the reason if Envoy responds with 400, whatever the route.
fn malformed(authority: &str, edge: Edge) -> Option<String> {
    if edge.reject_trailing_dot && without_port(authority).ends_with('.') {
        let why = "a final dot, which this Gateway rejects (trailing-dots)";
        return Some(format!("host {authority:?} has {why}"));
    }
    let forwarded = without_dot(authority);
    let host = without_port(&forwarded);
    let after_address = host.rsplit(']').next().unwrap_or_default();
    let wrong = if forwarded.contains([',', '@']) {
        "`,` or `@`; over HTTP/2 the stream is reset"
    } else if host.ends_with('.') {
        "two final dots"
    } else if after_address.contains(':') {
        "two ports"
    } else {
        return None;
    };
    Some(format!("host {authority:?} is malformed: it has {wrong}"))
}

fn without_port(authority: &str) -> &str {
    match authority.rfind(':') {
        Some(colon) if authority.rfind(']').is_none_or(|end| end < colon) => {
            authority.get(..colon).unwrap_or(authority)
        }
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(url: &str, headers: &[&str], edge: Edge) -> Prepared {
        prepare(
            &ExplainRequest::parse("GET", url, headers, None).unwrap(),
            edge,
        )
    }

    #[test]
    fn edge_settings_reject_dots_and_upgrades() {
        let strict = Edge {
            reject_trailing_dot: true,
            reject_other_upgrades: true,
            ..Edge::default()
        };
        for (url, headers, expected) in [
            ("http://a.test./", &[][..], Some(400)),
            ("http://a.test/", &["upgrade: TLS/1.2"], Some(403)),
            ("http://a.test/", &["upgrade: websocket"], None),
        ] {
            let status = |edge| match prepared(url, headers, edge) {
                Prepared::Answered {
                    outcome: ExplainedOutcome::Answered { status, .. },
                    ..
                } => Some(status),
                _ => None,
            };
            assert_eq!(status(strict), expected, "{url} {headers:?}");
            assert_eq!(status(Edge::default()), None, "{url} {headers:?}");
        }
    }

    fn compared(url: &str, headers: &[&str]) -> Compared {
        match prepared(url, headers, Edge::default()) {
            Prepared::Compared(compared) => compared,
            Prepared::Answered { outcome, .. } => panic!("{outcome:?}"),
        }
    }

    #[test]
    fn host_has_no_port_capitals_or_final_dot() {
        for (authority, host, forwarded) in [
            ("A.Test:80", "a.test", "A.Test:80"),
            ("[::1]:80", "[::1]", "[::1]:80"),
            ("[::1]", "[::1]", "[::1]"),
            ("A.test.", "a.test", "A.test"),
            ("a.test.:80", "a.test", "a.test:80"),
            ("[::1]:80", "[::1]", "[::1]:80"),
        ] {
            let compared = compared("http://x/", &[&format!("host: {authority}")]);
            assert_eq!(compared.host, host);
            assert_eq!(compared.authority, forwarded);
        }
    }

    #[test]
    fn malformed_authority_gets_400() {
        for authority in [
            "a,b",
            "u@a",
            "a..",
            "a..:80",
            "a...",
            "a:1:2",
            "a.:1:2",
            "a:1.:2",
            "[::1]:1:2",
        ] {
            let headers = [format!("host: {authority}")];
            let prepared = prepared(
                "http://x/",
                &headers.each_ref().map(String::as_str),
                Edge::default(),
            );
            let Prepared::Answered { outcome, .. } = prepared else {
                panic!("{authority} is compared");
            };
            assert!(
                matches!(outcome, ExplainedOutcome::Answered { status: 400, .. }),
                "{authority}"
            );
        }
    }

    #[test]
    fn headers_use_every_value_and_parameters_the_first() {
        let compared = compared(
            "http://x/?a=1&a=2&b&c==&%61=3",
            &["x-a: 1", "X-A: 2", "te: trailers"],
        );
        assert!(matches!(compared.header("X-a"), HeaderValue::Is(values) if values == ["1", "2"]));
        assert!(matches!(compared.header("te"), HeaderValue::Absent));
        assert!(matches!(
            compared.header("x-request-id"),
            HeaderValue::Unknown
        ));
        assert_eq!(compared.query_param("a"), Some("1"));
        assert_eq!(compared.query_param("b"), Some(""));
        assert_eq!(compared.query_param("c"), Some("="));
        assert_eq!(compared.query_param("d"), None);
    }

    #[test]
    fn underscores_follow_gateway_setting() {
        let with = |underscores: Underscores| {
            let edge = Edge {
                header_underscores: underscores.into(),
                ..Edge::default()
            };
            prepared("http://x/", &["x_a: 1"], edge)
        };
        assert!(matches!(
            with(Underscores::RejectRequest),
            Prepared::Answered {
                outcome: ExplainedOutcome::Answered { status: 400, .. },
                ..
            }
        ));
        for (underscores, kept) in [(Underscores::DropHeader, false), (Underscores::Allow, true)] {
            let Prepared::Compared(compared) = with(underscores) else {
                panic!("answered");
            };
            assert_eq!(matches!(compared.header("x_a"), HeaderValue::Is(_)), kept);
        }
    }

    #[test]
    fn only_requests_of_grpc_are_grpc() {
        for (content_type, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            let compared = compared("http://x/", &[&format!("content-type: {content_type}")]);
            assert_eq!(compared.grpc, expected, "{content_type}");
        }
    }
}
