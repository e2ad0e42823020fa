//! Types generated from `proto/snapshot.proto`. Maps are ordered, so encoding is deterministic.

#![allow(
    missing_docs,
    reason = "documented in snapshot.proto, which this is built from"
)]
#![allow(clippy::pedantic, reason = "generated")]

use std::borrow::Cow;

use tls_termination::ClientMode;

include!(concat!(env!("OUT_DIR"), "/sesame.snapshot.v1alpha1.rs"));

impl Retry {
    /// Largest number of retries of a request. Unlimited retries would flood a backend.
    pub const MOST_ATTEMPTS: u32 = 15;
    /// Shortest backoff in milliseconds, which is Envoy's default.
    pub const LEAST_BACKOFF_MS: u64 = 25;
}

impl Cors {
    /// Returns true if the match of a route, whose policy this is, also takes its preflights.
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

    /// Returns true if clients without a certificate are refused.
    pub fn requires_certificate(&self) -> bool {
        let requires = [ClientMode::Required, ClientMode::RequiredUnverified];
        self.asks_for_certificate() && requires.contains(&self.client_mode())
    }
}

impl DirectResponse {
    /// Largest body in bytes, which is also Envoy's default limit.
    pub const MOST_BODY: usize = 4096;

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
    /// Largest number of redirects that a proxy follows for a request.
    pub const MOST: u32 = 16;
    /// Statuses of redirects.
    pub const STATUSES: [u32; 5] = [301, 302, 303, 307, 308];
}

impl HashPolicy {
    /// The most policies of a backend.
    pub const MOST: usize = 16;
}

impl SlowStart {
    /// Largest exponent, in thousandths.
    pub const MOST_AGGRESSION: u32 = 100_000;
}

impl HealthCheck {
    /// Longest timeout in milliseconds. Envoy serves a new backend after its first check, for which
    /// a change of configuration waits.
    pub const MOST_TIMEOUT_MS: u64 = 10_000;
    /// Largest number of checks that change the state of an endpoint.
    pub const MOST_THRESHOLD: u32 = 1_000;
    /// The most ranges of statuses.
    pub const MOST_STATUSES: usize = 16;
}

impl RetryBudget {
    /// Largest number of concurrent retries that are always allowed.
    pub const MOST: u32 = 1_024;
}

impl Keepalive {
    /// Largest value of each field, in Linux.
    pub const MOST: u32 = 32_767;
}

/// Longest interval or window of a backend's settings in milliseconds: a day.
pub const MOST_BACKEND_MS: u64 = 86_400_000;

impl retry::Condition {
    /// Returns the condition that Envoy and Contour call by this name.
    pub fn named(name: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name == "5xx" {
            return Some(Self::ServerError);
        }
        let constant = name.to_ascii_uppercase().replace('-', "_");
        let found = Self::from_str_name(&constant).filter(|_| name.bytes().all(plain))?;
        (!matches!(found, Self::Unknown | Self::ServerError)).then_some(found)
    }

    /// Returns the name, or `None` for an unknown condition.
    pub fn name(self) -> Option<String> {
        match self {
            Self::Unknown => None,
            Self::ServerError => Some("5xx".to_owned()),
            other => Some(other.as_str_name().to_ascii_lowercase().replace('_', "-")),
        }
    }
}

impl Port {
    /// Returns the port that hosts open, unless their own settings map it.
    pub fn opened(&self) -> u32 {
        if self.inside == 0 {
            self.port
        } else {
            self.inside
        }
    }
}

impl VirtualHost {
    /// Largest number of authorizations. A proxy reserves a slot for each of them, used or
    /// not, because a change of their number would close the connections of all hostnames on the
    /// port.
    pub const MAX_EXTERNAL_AUTHS: usize = 4;
}

// Without floating-point numbers.
impl Eq for RateLimit {}
impl Eq for SharedFilter {}
impl Eq for RequestFilters {}

impl RateLimit {
    /// Largest number of limits of a Gateway.
    pub const MAX: usize = 1024;
    /// Largest number of limits of a route.
    pub const MAX_OF_ROUTE: usize = 16;
    /// Largest number of keys.
    pub const MAX_KEYS: usize = 4;
    /// Largest number of response headers.
    pub const MAX_HEADERS: usize = 10;

    /// Returns the limits that are in the order of their names and not too many. Envoy refuses two
    /// limits with one name.
    pub fn usable(limits: &[Self]) -> &[Self] {
        usable(limits, Self::MAX, |limit| &limit.name)
    }

    /// Returns whether refused requests can have this status. The proxy has a list of statuses.
    pub fn is_status(status: u32) -> bool {
        matches!(status, 400..=417 | 421..=424 | 426 | 428 | 429 | 431 | 500..=508 | 510 | 511)
    }
}

/// Returns the entries that are in the order of their names, at most this many.
fn usable<T>(entries: &[T], most: usize, name: impl Fn(&T) -> &str) -> &[T] {
    let entries = entries.get(..most).unwrap_or(entries);
    let mut pairs = entries.windows(2);
    let unsorted = pairs.position(|pair| matches!(pair, [a, b] if name(a) >= name(b)));
    let sorted = unsorted.and_then(|last| entries.get(..=last));
    sorted.unwrap_or(entries)
}

impl SharedFilter {
    /// Largest number of filters of a Gateway.
    pub const MAX: usize = 256;
    /// Largest number of error pages of a filter.
    pub const MAX_PAGES: usize = 8;
    /// Largest error page in bytes.
    pub const MAX_PAGE_BYTES: usize = 16 * 1024;

    /// Returns the filters that are in the order of their names and not too many.
    pub fn usable(filters: &[Self]) -> &[Self] {
        usable(filters, Self::MAX, |filter| &filter.name)
    }
}

impl Route {
    /// Returns the names of the shared filters that it uses itself.
    pub fn shared_filters(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let filters = self.filters.as_deref();
        filters.into_iter().flat_map(RequestFilters::shared)
    }
}

impl RequestFilters {
    /// Returns the names of the shared filters.
    pub fn shared(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let names = [&self.response, &self.bandwidth].into_iter();
        let names = names.chain(&self.tokens).map(|name| name.as_str().into());
        names
            .chain(self.token_set())
            .filter(|name: &Cow<'_, str>| !name.is_empty())
    }

    /// Returns the name of the filter that requires all of its tokens, or `None` without tokens.
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
    /// Largest number of providers of a policy.
    pub const MAX_PROVIDERS: usize = 4;
    /// Largest number of audiences, sources and headers of a provider.
    pub const MAX_ENTRIES: usize = 16;
}

impl ClaimHeader {
    /// Returns true for the name of a claim that Envoy can write into a header.
    pub fn is_name(name: &str) -> bool {
        !name.is_empty() && name.bytes().all(Self::is_name_character)
    }

    /// Returns true for a letter, a digit, `_` and `-`.
    pub fn is_name_character(c: u8) -> bool {
        c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-')
    }
}

impl Authorization {
    /// Largest number of rules, which nest in Envoy's configuration.
    pub const MAX_RULES: usize = 16;
    /// Largest number of entries of each list of a rule.
    pub const MAX_ENTRIES: usize = 16;
}

/// Encoded descriptors of the schema, for printing snapshots as JSON and for `bounds`.
pub static DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/snapshot.bin"));

/// Size of a value of each message in bytes, without heap allocations.
pub(crate) static SIZES: &[(&str, usize)] = include!(concat!(env!("OUT_DIR"), "/sizes.rs"));
