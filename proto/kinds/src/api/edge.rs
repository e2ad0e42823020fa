//! `spec.edge` of a SesameConfiguration: how untrusted clients are handled.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    ClientCertificateDetail, EdgePreset, EscapedSlashesAction, ExpectContinueAction,
    ForwardedCertificateMode, HeaderCase, Http3Mode, Http10Action, OtherUpgradesAction,
    ProxyProtocolMode, RepeatedSlashesAction, RequestIdMode, ServerHeaderMode, TrailingDotsAction,
    UnderscoresAction, ViaHeaderMode,
};

/// How untrusted clients are handled. A duration of `0s` disables the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct EdgeSettings {
    /// Defaults for the other fields: `Hardened`, the default, `Contour` or `Nginx`. Fields that any
    /// configuration sets take precedence.
    pub preset: Option<EdgePreset>,
    /// How `%2F` and `%5C` in paths are handled.
    pub escaped_slashes: Option<EscapedSlashesAction>,
    /// How `//` in paths is handled.
    pub repeated_slashes: Option<RepeatedSlashesAction>,
    /// How headers with `_` in their names are handled.
    pub header_underscores: Option<UnderscoresAction>,
    /// Maximum time to receive a complete request, including its body.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub request_timeout: Option<String>,
    /// Maximum time to receive a request's headers.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub request_headers_timeout: Option<String>,
    /// Maximum time without any request or response data.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub stream_idle_timeout: Option<String>,
    /// Maximum time that an HTTP connection may be idle.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub connection_idle_timeout: Option<String>,
    /// Maximum duration of the TLS handshake.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub tls_handshake_timeout: Option<String>,
    /// Maximum idle time of a UDP session. Must be greater than `0s`.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub udp_session_timeout: Option<String>,
    /// Maximum total size of a request's headers, in KiB.
    #[schemars(range(min = 1, max = 8192))]
    pub max_request_headers_kib: Option<i32>,
    /// Maximum number of headers per request.
    #[schemars(range(min = 1, max = 10000))]
    pub max_request_headers: Option<i32>,
    /// HTTP/1.1 upgrades to allow in addition to `websocket`: `SPDY/3.1` (`kubectl exec`) and `tcp`
    /// (`docker attach`). All other upgrade requests are ignored.
    #[schemars(length(max = 2), inner(regex(pattern = r"^(SPDY/3\.1|tcp)$")))]
    pub upgrades: Option<Vec<String>>,
    /// How other upgrade requests are handled: `Ignore`, the default, serves them without the
    /// upgrade, as RFC 9110 asks. `Reject` responds with 403.
    pub other_upgrades: Option<OtherUpgradesAction>,
    /// `Accept`, the default, serves HTTP/1.0 requests with a host, for old health checks. `Reject`
    /// responds with 426.
    pub http10: Option<Http10Action>,
    /// Case of header names in HTTP/1.1: `Lowercase`, the default, or `Preserve` for clients and
    /// backends that compare names by case. `Preserve` costs memory for each request.
    pub header_case: Option<HeaderCase>,
    /// Who answers `Expect: 100-continue`: `Forward`, the default, lets the backend decide and also
    /// forwards other 1xx responses. `Answer` lets clients send bodies that the backend may refuse.
    pub expect_continue: Option<ExpectContinueAction>,
    /// Hosts with a trailing dot: `Remove`, the default, serves `a.example.` as `a.example`. `Reject`
    /// responds with 400.
    pub trailing_dots: Option<TrailingDotsAction>,
    /// The header `x-request-id`: `Generate`, the default, replaces clients' values, which could
    /// forge log entries. `Keep` generates only missing ones. `Off` generates none.
    pub request_id: Option<RequestIdMode>,
    /// The response header `server`: `Keep`, the default, forwards the backend's. `Add` adds `envoy`
    /// if it is missing. `Replace` hides the backend's.
    pub server_header: Option<ServerHeaderMode>,
    /// The header `via`: `Omit`, the default, or `Append`, which adds `1.1 sesame` to requests and
    /// responses, so that proxies can detect loops. It reveals the proxy.
    pub via_header: Option<ViaHeaderMode>,
    /// Maximum total size of a response's headers, in KiB; 256 by default. Larger responses become
    /// 502. Each response may take this much memory.
    #[schemars(range(min = 1, max = 8192))]
    pub max_response_headers_kib: Option<i32>,
    /// Maximum number of headers per response; 1000 by default. Responses with more become 502.
    #[schemars(range(min = 1, max = 10000))]
    pub max_response_headers: Option<i32>,
    /// Maximum age of an HTTP connection, after which it is closed once its requests end; none by
    /// default. Spreads clients over new hosts, at the cost of new handshakes.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub max_connection_age: Option<String>,
    /// Maximum number of requests per HTTP connection; none by default.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_connection_requests: Option<i32>,
    /// Time between HTTP/2 and HTTP/3 pings to clients: `1s` or more; none by default. Detects lost
    /// clients sooner than the idle timeout, but wakes up mobile clients.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub keepalive_interval: Option<String>,
    /// Maximum number of concurrent requests per HTTP/2 or HTTP/3 connection; 100 by default.
    #[schemars(range(min = 1, max = 10000))]
    pub max_concurrent_streams: Option<i32>,
    /// Buffer for each client and backend connection, in KiB; 32 by default. Larger buffers may be
    /// faster over slow networks. Hosts admit as many connections as fit in memory with 32 KiB.
    #[schemars(range(min = 4, max = 1024))]
    pub connection_buffer_kib: Option<i32>,
    /// Proxies whose headers determine the address of a client. By default, it is the address of the
    /// connection, unless the hosts have `trusted-hops`. If several configurations set this field,
    /// only the last one applies.
    pub client_address: Option<ClientAddressSettings>,
    /// PROXY protocol header at the start of incoming TCP connections; none by default. If several
    /// configurations set this field, only the last one applies.
    pub proxy_protocol: Option<ProxyProtocolSettings>,
    /// HTTP/3 on HTTPS listeners, in addition to HTTP/1.1 and HTTP/2; none by default. If several
    /// configurations set this field, only the last one applies.
    pub http3: Option<Http3Settings>,
    /// How the header `x-forwarded-client-cert` is handled. Applies only to HTTPS listeners that
    /// verify client certificates; all other listeners remove the header, as do listeners with
    /// `AllowInsecureFallback`. If several configurations set this field, only the last one
    /// applies. An HTTPProxy's `forwardClientCertificate` takes precedence on its host.
    pub forward_client_certificate: Option<ForwardedCertificateSettings>,
}

/// Proxies in front of HTTP and HTTPS listeners, and how they report the addresses of clients. Only
/// these proxies are believed. Over HTTP/3, `networks` are not, because proxies use TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ClientAddressSettings {
    /// Networks of the proxies, such as `192.0.2.0/24`. The client is the last address in
    /// `x-forwarded-for` outside these networks. Other peers are clients, and their headers are never
    /// believed.
    #[schemars(length(min = 1, max = 64), inner(length(max = 43)))]
    pub networks: Option<Vec<String>>,
    /// Number of proxies that append an address to `x-forwarded-for`; with `networks`, instead of the
    /// last address outside them. Without `networks`, every client that can connect can forge its
    /// address. 0 believes no proxy, even if the hosts have `trusted-hops`.
    #[schemars(range(min = 0, max = 16))]
    pub hops: Option<i32>,
    /// Header with only the client's address, such as `cf-connecting-ip`. Requires `networks`, whose
    /// proxies must set or remove it in every request. Without a valid address, the client is the
    /// proxy. Not allowed with `hops`.
    #[schemars(length(min = 1, max = 256))]
    pub header: Option<String>,
}

/// PROXY protocol header, version 1 or 2, at the start of incoming TCP connections. Its source
/// address becomes the client's address. Applies to HTTP, HTTPS, TLS and TCP listeners, never to
/// UDP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyProtocolSettings {
    /// `Required`, the default, closes connections without a header. `Optional` also serves them,
    /// so every client that can connect can forge its address. `Disabled` accepts no header. With
    /// `Required`, clients that can bypass the load balancer can forge their addresses too.
    pub mode: Option<ProxyProtocolMode>,
}

/// HTTP/3 over UDP, on the port of each HTTPS listener. Responses over TCP announce it with the
/// header `alt-svc`. Listeners that ask for client certificates, ports with UDP listeners, and
/// ports with `proxyProtocol` are served only over TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Http3Settings {
    /// `Enabled`, the default, or `Disabled`.
    pub mode: Option<Http3Mode>,
}

/// How the header `x-forwarded-client-cert` is handled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ForwardedCertificateSettings {
    /// `Sanitize`, the default, removes the header. `SanitizeSet` replaces it with the certificate's
    /// hash and `details`. `ForwardOnly` forwards the client's header, and `AppendForward` appends
    /// the certificate's hash and `details` to it: use them only if every client with a valid
    /// certificate is a proxy that you trust. Requests without a client certificate never keep the
    /// header.
    pub mode: Option<ForwardedCertificateMode>,
    /// Parts of the client certificate to add; none by default. Requires mode `SanitizeSet` or
    /// `AppendForward`.
    #[schemars(length(max = 5))]
    pub details: Option<Vec<ClientCertificateDetail>>,
}

/// Settings for the clients of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct PortEdge {
    /// The listener port, for TCP and UDP.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Settings for this port, as in `spec.edge`. `preset`, `headerCase`, `maxResponseHeaders`,
    /// `maxResponseHeadersKib` and `connectionBufferKib` are not allowed, because they also affect
    /// connections to backends, which all ports share.
    #[serde(default)]
    pub edge: EdgeSettings,
}
