//! Types generated from `proto/snapshot.proto` and `proto/bundle.proto`. Maps are ordered for
//! deterministic encoding.

#![allow(missing_docs, reason = "documented in the .proto files")]
#![allow(clippy::pedantic, reason = "generated")]

use std::borrow::Cow;

use tls_termination::ClientMode;

include!(concat!(env!("OUT_DIR"), "/sesame.snapshot.v1alpha1.rs"));

impl Retry {
    /// Maximum number of retries per request. More could flood a backend.
    pub const MAX_ATTEMPTS: u32 = 15;
    /// Minimum backoff in milliseconds, as in Envoy.
    pub const LEAST_BACKOFF_MS: u64 = 25;
}

impl Cors {
    /// Returns true if `route` matches its own preflights under this policy.
    pub fn takes_preflights(&self, route: &Route) -> bool {
        let matches_method = route.method.is_empty() || route.method == "OPTIONS";
        let mut headers = route.headers.iter();
        matches_method && !(self.ignores_matched_headers && headers.any(|it| it.name != "host"))
    }
}

impl Snapshot {
    /// Returns the settings for clients of a port.
    pub fn edge_on(&self, port: u32) -> Edge {
        let mut same = self.ports.iter().filter(|it| it.port == port);
        let own = same.find_map(|it| it.edge);
        own.or(self.edge).unwrap_or_default()
    }
}

impl TlsTermination {
    /// Returns true if clients are asked for a certificate.
    pub fn asks_for_certificate(&self) -> bool {
        !self.client_trust_bundle.is_empty() || self.client_mode() == ClientMode::OptionalUnverified
    }

    /// Returns true if the listener may also be served over HTTP/3. Envoy 1.39 rejects client
    /// certificates over QUIC, QUIC always uses TLS 1.3 with Envoy's key exchange groups, and ALPN
    /// then only offers `h3`.
    pub fn allows_http3(&self) -> bool {
        let is_unchecked =
            !self.asks_for_certificate() && self.client_mode() == ClientMode::Required;
        let is_tls_13 = matches!(
            self.max_version(),
            tls_termination::Version::Unset | tls_termination::Version::Tls13
        );
        is_unchecked && is_tls_13 && self.alpn.is_empty() && self.key_exchange_groups.is_empty()
    }

    /// Returns true if a client certificate is required.
    pub fn requires_certificate(&self) -> bool {
        let requires = [ClientMode::Required, ClientMode::RequiredUnverified];
        self.asks_for_certificate() && requires.contains(&self.client_mode())
    }
}

impl DirectResponse {
    /// Maximum body size in bytes, equal to Envoy's default.
    pub const MAX_BODY: usize = 4096;

    /// Returns a response without a body.
    pub fn new(status: u32) -> Self {
        Self {
            status,
            body: String::new(),
            content_type: String::new(),
        }
    }
}

impl InternalRedirect {
    /// Maximum number of redirects to follow per request.
    pub const MAX: u32 = 16;
    /// Redirect statuses that the proxy can follow.
    pub const STATUSES: [u32; 5] = [301, 302, 303, 307, 308];
}

impl HashPolicy {
    /// Maximum number of hash policies per backend.
    pub const MAX: usize = 16;
}

impl SlowStart {
    /// Maximum aggression, in thousandths.
    pub const MAX_AGGRESSION: u32 = 100_000;
}

impl Backend {
    /// Returns the port of the endpoints that health checks use, or 0 for the port that gets
    /// requests.
    pub fn health_port(&self) -> u32 {
        self.health_check.as_ref().map_or(0, |check| check.port)
    }
}

impl ZonePreference {
    /// Highest minimum of endpoints in a zone.
    pub const MAX: u32 = 1_000;
}

impl HealthCheck {
    /// Maximum timeout in milliseconds, because a configuration change waits for a new backend's
    /// first health check.
    pub const MAX_TIMEOUT_MS: u64 = 10_000;
    /// Maximum number of consecutive results before an endpoint's state changes.
    pub const MAX_THRESHOLD: u32 = 1_000;
    /// Maximum number of healthy status ranges.
    pub const MAX_STATUSES: usize = 16;
}

impl RetryBudget {
    /// Maximum number of concurrent retries that a budget always allows.
    pub const MAX: u32 = 1_024;
}

impl Keepalive {
    /// Highest value that Linux accepts for each field.
    pub const MAX: u32 = 32_767;
}

/// Maximum interval or window in a backend's settings: one day in milliseconds.
pub const MAX_BACKEND_MS: u64 = 86_400_000;

impl retry::Condition {
    /// Returns the condition with this name, as used by Envoy and Contour.
    pub fn named(name: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name == "5xx" {
            return Some(Self::ServerError);
        }
        let constant = name.to_ascii_uppercase().replace('-', "_");
        let found = Self::from_str_name(&constant).filter(|_| name.bytes().all(plain))?;
        (!matches!(found, Self::Unknown | Self::ServerError)).then_some(found)
    }

    /// Returns the condition's name, or `None` if it is unknown.
    pub fn name(self) -> Option<String> {
        match self {
            Self::Unknown => None,
            Self::ServerError => Some("5xx".to_owned()),
            other => Some(other.as_str_name().to_ascii_lowercase().replace('_', "-")),
        }
    }
}

impl Port {
    /// Returns the port that hosts open, unless a host's port map overrides it.
    pub fn opened(&self) -> u32 {
        if self.inside == 0 {
            self.port
        } else {
            self.inside
        }
    }
}

impl VirtualHost {
    /// Maximum number of external authorizations. All slots are reserved, because changing the
    /// number would close the port's connections.
    pub const MAX_EXTERNAL_AUTHS: usize = 4;
}

impl Route {
    /// Maximum number of external authorizations. All slots are reserved.
    pub const MAX_EXTERNAL_AUTHS: usize = 4;
}

// These messages contain no floating-point numbers, so equality is an equivalence relation.
impl Eq for RateLimit {}
impl Eq for SharedFilter {}
impl Eq for RequestFilters {}

/// Stops at the first entry that is out of order.
pub(crate) fn usable<T>(entries: &[T], most: usize, name: impl Fn(&T) -> &str) -> &[T] {
    let entries = entries.get(..most).unwrap_or(entries);
    let mut pairs = entries.windows(2);
    let unsorted = pairs.position(|pair| matches!(pair, [a, b] if name(a) >= name(b)));
    let sorted = unsorted.and_then(|last| entries.get(..=last));
    sorted.unwrap_or(entries)
}

impl SharedFilter {
    /// Maximum number of shared filters per Gateway.
    pub const MAX: usize = 256;
    /// Maximum number of error pages per filter.
    pub const MAX_PAGES: usize = 8;
    /// Maximum size of an error page in bytes.
    pub const MAX_PAGE_BYTES: usize = 16 * 1024;

    /// Returns at most `MAX` filters, which must be sorted by name.
    pub fn usable(filters: &[Self]) -> &[Self] {
        usable(filters, Self::MAX, |filter| &filter.name)
    }
}

impl Route {
    /// Returns the names of the route's own shared filters.
    pub fn shared_filters(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let filters = self.filters.as_deref();
        filters.into_iter().flat_map(RequestFilters::shared)
    }
}

impl RequestFilters {
    /// Returns the names of all referenced shared filters.
    pub fn shared(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let own = [&self.response, &self.bandwidth, &self.credentials];
        let names = own.into_iter().chain([&self.injected, &self.grpc_json]);
        let names = names.chain(self.maintenance.iter().map(|it| &it.page));
        let names = names.chain(self.all_tokens());
        let names = names.map(|name| name.as_str().into());
        names
            .chain(self.token_set())
            .filter(|name: &Cow<'_, str>| !name.is_empty())
    }

    /// Returns the names of the token policies, including those that only report.
    pub fn all_tokens(&self) -> impl Iterator<Item = &String> {
        let reported = self.reported.iter().flat_map(|it| &it.tokens);
        self.tokens.iter().chain(reported)
    }

    /// Returns the name of the shared filter that checks all tokens, if any.
    pub fn token_set(&self) -> Option<Cow<'_, str>> {
        let policies: Vec<&str> = self.all_tokens().map(String::as_str).collect();
        match policies.as_slice() {
            [] => None,
            [policy] => Some((*policy).into()),
            policies => Some(TokenSet::name(policies).into()),
        }
    }
}

impl TokenSet {
    /// Returns the name for a set of policies.
    pub fn name(policies: &[impl AsRef<str>]) -> String {
        let policies: Vec<&str> = policies.iter().map(AsRef::as_ref).collect();
        policies.join(",")
    }
}

impl CredentialSet {
    /// Maximum number of credentials per check.
    pub const MAX_CREDENTIALS: usize = 1024;
    /// Maximum size of a check's credentials in bytes.
    pub const MAX_BYTES: usize = 128 * 1024;
    /// Maximum number of sources of an API key per check.
    pub const MAX_SOURCES: usize = 4;

    /// Returns the name for a set of checks, which must be sorted by name.
    pub fn name(checks: &[CredentialCheck]) -> String {
        let names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
        names.join(",")
    }

    /// Returns the policies and their parts in the name of a set.
    pub fn checks(set: &str) -> impl Iterator<Item = (&str, CredentialPart)> {
        set.split(',').filter_map(|name| {
            let (policy, part) = name.rsplit_once('/')?;
            let part = match part {
                "basicAuth" => CredentialPart::BasicAuth,
                "apiKeyAuth" => CredentialPart::ApiKeyAuth,
                _ => return None,
            };
            Some((policy, part))
        })
    }
}

/// Part of an AccessPolicy that checks credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialPart {
    /// Users and passwords.
    BasicAuth,
    /// API keys.
    ApiKeyAuth,
}

impl CredentialPart {
    /// Returns the name in explanations.
    pub fn label(self) -> &'static str {
        match self {
            Self::BasicAuth => "BasicAuth",
            Self::ApiKeyAuth => "APIKey",
        }
    }

    /// Describes the credentials of a request.
    pub fn credentials(self) -> &'static str {
        match self {
            Self::BasicAuth => "a user's name and password",
            Self::ApiKeyAuth => "an API key",
        }
    }
}

impl TokenPolicy {
    const PART: &str = "/jwt";

    /// Returns the name of an AccessPolicy's token filter. `policy` is
    /// `AccessPolicy/namespace/name`.
    pub fn name(policy: &str) -> String {
        format!("{policy}{}", Self::PART)
    }

    /// Returns the AccessPolicy in a token filter's name.
    pub fn policy(name: &str) -> &str {
        name.strip_suffix(Self::PART).unwrap_or(name)
    }

    /// Maximum number of providers per policy.
    pub const MAX_PROVIDERS: usize = 4;
    /// Maximum number of audiences, sources and headers per provider.
    pub const MAX_ENTRIES: usize = 16;
}

impl ClaimHeader {
    /// Returns true if Envoy can write this claim to a header.
    pub fn is_name(name: &str) -> bool {
        !name.is_empty() && name.bytes().all(Self::is_name_character)
    }

    /// Returns true if the byte is an ASCII letter or digit, `_` or `-`.
    pub fn is_name_character(c: u8) -> bool {
        c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-')
    }
}

impl Authorization {
    /// Maximum number of rules per authorization, low because Envoy's configuration nests them.
    pub const MAX_RULES: usize = 16;
    /// Maximum number of entries in each list of a rule.
    pub const MAX_ENTRIES: usize = 16;
}

impl CertificateNames {
    /// Maximum number of alternative names per certificate.
    pub const MAX_NAMES: usize = 5;
}

/// Encoded descriptors of the schema.
pub static DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/snapshot.bin"));

/// Message sizes in bytes, excluding heap allocations.
pub(crate) static SIZES: &[(&str, usize)] = include!(concat!(env!("OUT_DIR"), "/sizes.rs"));
