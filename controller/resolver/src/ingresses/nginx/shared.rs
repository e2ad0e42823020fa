//! Reads annotations for `convert` with the parsers that resolution uses.

use std::collections::BTreeMap;

use sesame_proto::schema::{
    LoadBalancer, RateLimit, Retry, SessionPersistence, path_modifier, string_match,
};
use sesame_proto::schema::{PathModifier, StringMatch};

use super::forwarding::Forwarding;
use super::paths::Paths;
use super::server_names::ServerNames;
use super::values::{boolean, list};
use super::{Annotations, CanaryChoice, protection};
use crate::backends::UpstreamProtocol;
use crate::filters::rewrites::RedirectTo;
use sesame_kinds::api::{Ingress, Metadata, NGINX_PREFIX};

pub use super::auth::copied_headers;
pub use super::paths::{group_references, has_groups, is_expression, pattern};
pub use super::table::{Effect, NginxAnnotation};

/// Settings in an Ingress's annotations, except for references to other objects.
#[derive(Debug, Default)]
pub struct NginxReading {
    /// Redirects to HTTPS.
    pub https_redirects: HttpsRedirects,
    /// Paths may be regular expressions.
    pub are_expressions: bool,
    /// Replacement of the path, with references such as `$1`.
    pub rewrite_target: Option<String>,
    /// Redirect of all requests.
    pub redirect: Option<NginxRedirect>,
    /// Redirect of requests for `/`.
    pub app_root: Option<NginxRedirect>,
    /// More names of the first host.
    pub aliases: Vec<String>,
    /// Redirects names with `www.` to names without it, or the reverse.
    pub redirects_www: bool,
    /// Timeout without data.
    pub idle_ms: Option<u64>,
    /// Timeout of connections to backends.
    pub connect_ms: Option<u64>,
    /// Retries.
    pub retry: Option<Retry>,
    /// Sessions.
    pub session: Option<SessionPersistence>,
    /// Host that backends receive.
    pub host: Option<String>,
    /// Value of `X-Forwarded-Prefix`.
    pub forwarded_prefix: Option<String>,
    /// Protocol of the backends.
    pub protocol: NginxProtocol,
    /// Load balancing.
    pub load_balancer: Option<LoadBalancer>,
    /// CORS.
    pub cors: Option<NginxCors>,
    /// Limits for each client.
    pub limits: Vec<RateLimit>,
    /// Networks that may send requests; empty for all.
    pub allow: Vec<String>,
    /// Networks that may not send requests.
    pub deny: Vec<String>,
    /// Maximum size of a body; 0 for no limit.
    pub max_body_bytes: u64,
    /// Invalid annotations, without the prefix, and reasons.
    pub faults: BTreeMap<String, String>,
}

/// Hosts whose plain HTTP requests are redirected to HTTPS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpsRedirects {
    /// None.
    Never,
    /// Hosts with TLS.
    #[default]
    TlsHosts,
    /// All hosts.
    AllHosts,
}

/// Protocol of backends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NginxProtocol {
    /// HTTP/1.1.
    #[default]
    Http,
    /// HTTP/2 without TLS.
    Grpc,
    /// TLS.
    Tls,
}

/// A redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NginxRedirect {
    /// `http` or `https`; empty to keep the scheme.
    pub scheme: &'static str,
    /// Host; empty to keep it.
    pub host: String,
    /// Port.
    pub port: Option<u16>,
    /// Path; `None` to keep it.
    pub path: Option<String>,
    /// HTTP status.
    pub status: u32,
}

impl NginxRedirect {
    fn of(redirect: RedirectTo) -> Self {
        let RedirectTo {
            scheme,
            host,
            port,
            path,
            status,
        } = redirect;
        let path = path.and_then(|PathModifier { kind }| match kind {
            Some(path_modifier::Kind::Full(path)) => Some(path),
            _ => None,
        });
        Self {
            scheme,
            host,
            port,
            path,
            status,
        }
    }
}

/// CORS settings with ingress-nginx's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NginxCors {
    /// Origins.
    pub origins: Vec<String>,
    /// Methods.
    pub methods: Vec<String>,
    /// Request headers.
    pub headers: Vec<String>,
    /// Response headers that scripts may read.
    pub exposed: Vec<String>,
    /// True if requests may include credentials.
    pub credentials: bool,
    /// Seconds.
    pub max_age: Option<u32>,
}

/// Reads an Ingress's annotations.
pub fn read(metadata: &Metadata) -> NginxReading {
    let mut from = Annotations::of(metadata);
    let Paths {
        are_expressions,
        rewrite_target,
        redirect,
        app_root,
    } = Paths::read(&mut from);
    let ServerNames {
        aliases,
        redirects_www,
    } = ServerNames::read(&mut from);
    let Forwarding {
        idle_ms,
        retry,
        session,
        host,
        forwarded_prefix,
        protocol,
        settings,
    } = Forwarding::read(&mut from);
    let cors = cors(&mut from);
    let limits = protection::limits(&mut from, "");
    let (allow, deny) = protection::addresses(&mut from);
    let max_body_bytes = protection::body(&mut from).unwrap_or_default();
    let redirects_tls = from.require("ssl-redirect", boolean).unwrap_or(true);
    let redirects_all = from.require("force-ssl-redirect", boolean);
    let https_redirects = match (redirects_all.unwrap_or_default(), redirects_tls) {
        (true, _) => HttpsRedirects::AllHosts,
        (false, true) => HttpsRedirects::TlsHosts,
        (false, false) => HttpsRedirects::Never,
    };
    let networks = |ranges: Option<Vec<_>>| {
        let ranges = ranges.unwrap_or_default().into_iter();
        ranges
            .map(|it: sesame_proto::schema::AddressRange| it.network)
            .collect()
    };
    NginxReading {
        https_redirects,
        are_expressions,
        rewrite_target,
        redirect: redirect.map(NginxRedirect::of),
        app_root: app_root.map(NginxRedirect::of),
        aliases: aliases.iter().map(|it| it.as_str().to_owned()).collect(),
        redirects_www,
        idle_ms,
        connect_ms: settings.connections.map(|it| it.connect_timeout_ms),
        retry,
        session,
        host,
        forwarded_prefix,
        protocol: match protocol {
            None => NginxProtocol::Http,
            Some(UpstreamProtocol::H2c) => NginxProtocol::Grpc,
            Some(_) => NginxProtocol::Tls,
        },
        load_balancer: settings.load_balancer,
        cors,
        limits: limits.iter().map(|it| RateLimit::clone(it)).collect(),
        allow: networks(allow),
        deny: networks(deny),
        max_body_bytes,
        faults: from.faults,
    }
}

/// The origins keep their text, because the Gateway API has the same form.
fn cors(from: &mut Annotations<'_>) -> Option<NginxCors> {
    let cors = protection::cors(from)?;
    let origins = from.get("cors-allow-origin").unwrap_or("*");
    Some(NginxCors {
        origins: list(origins).map(str::to_owned).collect(),
        methods: cors.allow_methods,
        headers: cors.allow_headers,
        exposed: cors.expose_headers,
        credentials: cors.allow_credentials,
        max_age: cors.max_age_seconds,
    })
}

/// Which requests go to a canary.
#[derive(Debug, Default)]
pub struct CanaryReading {
    /// Conditions in order of precedence.
    pub conditions: Vec<CanaryCondition>,
    /// Share of the other requests.
    pub weight: u32,
    /// Sum of both shares.
    pub total: u32,
    /// Invalid annotations, without the prefix, and reasons.
    pub faults: BTreeMap<String, String>,
}

/// A condition on a header.
#[derive(Debug)]
pub struct CanaryCondition {
    /// Name of the header.
    pub name: String,
    /// Value or regular expression.
    pub value: String,
    /// True for a regular expression.
    pub is_expression: bool,
    /// True if matching requests go to the canary, false if none of them does.
    pub is_taken: bool,
}

/// Returns `None` unless the Ingress is a canary.
pub fn read_canary(ingress: &Ingress) -> Option<CanaryReading> {
    if !super::is_canary(ingress) {
        return None;
    }
    let mut from = Annotations::of(&ingress.metadata);
    let CanaryChoice {
        conditions,
        weight,
        total,
    } = CanaryChoice::read_from(&mut from);
    let conditions = conditions.into_iter();
    let conditions = conditions.filter_map(|(StringMatch { name, kind }, _, is_taken)| {
        let (value, is_expression) = match kind? {
            string_match::Kind::Exact(value) => (value, false),
            string_match::Kind::Regex(value) => (value, true),
            _ => return None,
        };
        Some(CanaryCondition {
            name,
            value,
            is_expression,
            is_taken,
        })
    });
    Some(CanaryReading {
        conditions: conditions.collect(),
        weight,
        total,
        faults: from.faults,
    })
}

/// Returns an annotation's name without the prefix if it belongs to ingress-nginx.
pub fn short_name(annotation: &str) -> Option<&str> {
    annotation.strip_prefix(NGINX_PREFIX)
}
