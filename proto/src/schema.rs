//! Types generated from `proto/snapshot.proto` and `proto/bundle.proto`. Maps are ordered, so that
//! encoding is deterministic.

#![allow(
    missing_docs,
    reason = "documented in snapshot.proto, which this is built from"
)]
#![allow(clippy::pedantic, reason = "generated")]

use std::borrow::Cow;

use tls_termination::ClientMode;

include!(concat!(env!("OUT_DIR"), "/sesame.snapshot.v1alpha1.rs"));

impl Retry {
    /// Maximum number of retries per request. Without a maximum, retries could flood a backend.
    pub const MAX_ATTEMPTS: u32 = 15;
    /// Minimum backoff in milliseconds. It is also Envoy's default.
    pub const LEAST_BACKOFF_MS: u64 = 25;
}

impl Cors {
    /// Returns true if `route`, which has this policy, also matches its own preflights.
    pub fn takes_preflights(&self, route: &Route) -> bool {
        let of_method = route.method.is_empty() || route.method == "OPTIONS";
        let mut headers = route.headers.iter();
        of_method && !(self.ignores_matched_headers && headers.any(|it| it.name != "host"))
    }
}

impl TlsTermination {
    /// Returns true if clients are asked for a certificate.
    pub fn asks_for_certificate(&self) -> bool {
        !self.client_trust_bundle.is_empty() || self.client_mode() == ClientMode::OptionalUnverified
    }

    /// Returns true if connections without a client certificate are rejected.
    pub fn requires_certificate(&self) -> bool {
        let requires = [ClientMode::Required, ClientMode::RequiredUnverified];
        self.asks_for_certificate() && requires.contains(&self.client_mode())
    }
}

impl DirectResponse {
    /// Maximum body size in bytes. It equals Envoy's default limit.
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
    /// Maximum number of redirects that the proxy follows per request.
    pub const MAX: u32 = 16;
    /// Statuses that the proxy can follow as redirects.
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

impl HealthCheck {
    /// Maximum timeout in milliseconds. Envoy uses a new backend only after its first health check,
    /// and a configuration change waits for that check.
    pub const MAX_TIMEOUT_MS: u64 = 10_000;
    /// Maximum number of checks after which an endpoint's state changes.
    pub const MAX_THRESHOLD: u32 = 1_000;
    /// Maximum number of ranges of statuses that count as healthy.
    pub const MAX_STATUSES: usize = 16;
}

impl RetryBudget {
    /// Maximum value for the number of concurrent retries that a budget always allows.
    pub const MAX: u32 = 1_024;
}

impl Keepalive {
    /// Maximum value of each field. Linux accepts no higher values.
    pub const MAX: u32 = 32_767;
}

/// Maximum interval or time window in a backend's settings, in milliseconds: one day.
pub const MAX_BACKEND_MS: u64 = 86_400_000;

impl retry::Condition {
    /// Returns the condition with this name. Envoy and Contour use the same names.
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
    /// Returns the port number that hosts open, unless a host's own port map overrides it.
    pub fn opened(&self) -> u32 {
        if self.inside == 0 {
            self.port
        } else {
            self.inside
        }
    }
}

impl VirtualHost {
    /// Maximum number of external authorizations. The proxy always reserves this number of slots:
    /// changing the number would close the connections for every hostname on the port.
    pub const MAX_EXTERNAL_AUTHS: usize = 4;
}

impl Route {
    /// Maximum number of external authorizations. The proxy always reserves this number of slots,
    /// as for a virtual host.
    pub const MAX_EXTERNAL_AUTHS: usize = 4;
}

// These messages contain no floating-point numbers, so equality is an equivalence relation.
impl Eq for RateLimit {}
impl Eq for SharedFilter {}
impl Eq for RequestFilters {}

impl RateLimit {
    /// Maximum number of limits per Gateway.
    pub const MAX: usize = 1024;
    /// Maximum number of rate limits per route.
    pub const MAX_OF_ROUTE: usize = 16;
    /// Maximum number of keys per limit.
    pub const MAX_KEYS: usize = 4;
    /// Maximum number of response headers per limit.
    pub const MAX_HEADERS: usize = 10;

    /// Returns the first `MAX` limits, or only those before the first limit out of order by name.
    /// Envoy rejects two limits with the same name.
    pub fn usable(limits: &[Self]) -> &[Self] {
        usable(limits, Self::MAX, |limit| &limit.name)
    }

    /// Returns true if a limit may use this status for rejected requests. Envoy supports a fixed
    /// list of statuses.
    pub fn is_status(status: u32) -> bool {
        matches!(status, 400..=417 | 421..=424 | 426 | 428 | 429 | 431 | 500..=508 | 510 | 511)
    }
}

/// Returns the first `most` entries, or only those before the first entry out of order by name.
fn usable<T>(entries: &[T], most: usize, name: impl Fn(&T) -> &str) -> &[T] {
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

    /// Returns the first `MAX` filters, or only those before the first filter out of order by name.
    pub fn usable(filters: &[Self]) -> &[Self] {
        usable(filters, Self::MAX, |filter| &filter.name)
    }
}

impl Route {
    /// Returns the names of the shared filters to which the route itself refers.
    pub fn shared_filters(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let filters = self.filters.as_deref();
        filters.into_iter().flat_map(RequestFilters::shared)
    }
}

impl RequestFilters {
    /// Returns the names of the shared filters to which these filters refer.
    pub fn shared(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let names = [&self.response, &self.bandwidth].into_iter();
        let names = names.chain(&self.tokens).map(|name| name.as_str().into());
        names
            .chain(self.token_set())
            .filter(|name: &Cow<'_, str>| !name.is_empty())
    }

    /// Returns the name of the shared filter that requires all tokens, or `None` if no tokens are
    /// required.
    pub fn token_set(&self) -> Option<Cow<'_, str>> {
        match self.tokens.as_slice() {
            [] => None,
            [policy] => Some(policy.as_str().into()),
            policies => Some(TokenSet::name(policies).into()),
        }
    }
}

impl TokenSet {
    /// Returns the name of the set of these policies.
    pub fn name(policies: &[String]) -> String {
        policies.join(",")
    }
}

impl TokenPolicy {
    /// Suffix of the name of an AccessPolicy's token filter, which distinguishes it from the name
    /// of the policy.
    const PART: &str = "/jwt";

    /// Returns the name of an AccessPolicy's token filter. `policy` is
    /// `AccessPolicy/namespace/name`.
    pub fn name(policy: &str) -> String {
        format!("{policy}{}", Self::PART)
    }

    /// Returns the AccessPolicy to which the token filter with this name belongs.
    pub fn policy(name: &str) -> &str {
        name.strip_suffix(Self::PART).unwrap_or(name)
    }

    /// Maximum number of providers per policy.
    pub const MAX_PROVIDERS: usize = 4;
    /// Maximum number of audiences, sources and headers per provider.
    pub const MAX_ENTRIES: usize = 16;
}

impl ClaimHeader {
    /// Returns true if Envoy can write the claim with this name to a header.
    pub fn is_name(name: &str) -> bool {
        !name.is_empty() && name.bytes().all(Self::is_name_character)
    }

    /// Returns true for an ASCII letter or digit, `_` or `-`.
    pub fn is_name_character(c: u8) -> bool {
        c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-')
    }
}

impl Authorization {
    /// Maximum number of rules per authorization. It is low because the rules are nested in Envoy's
    /// configuration.
    pub const MAX_RULES: usize = 16;
    /// Maximum number of entries in each of a rule's lists.
    pub const MAX_ENTRIES: usize = 16;
}

/// Encoded descriptors of the schema. Used to print snapshots as JSON, and by `bounds` to compute
/// sizes in memory.
pub static DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/snapshot.bin"));

/// Size in memory of each message type in bytes, without heap allocations.
pub(crate) static SIZES: &[(&str, usize)] = include!(concat!(env!("OUT_DIR"), "/sizes.rs"));
