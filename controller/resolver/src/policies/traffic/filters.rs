//! Request and response filters configured by TrafficPolicies and AccessPolicies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::keys::KeyPair;
use sesame_proto::schema::shared_filter::Kind;
use sesame_proto::schema::{
    Bandwidth, Compression, CredentialSet, ErrorPage, Fault, HeaderModifier, Maintenance,
    RequestFilters, ResponseFilter, SharedFilter, SignIn, TokenSet,
};

use super::access::{AccessCheck, headers_set_by};
use super::credentials::Credentials;
use super::jwt::TokenCheck;
use crate::filters::OwnFilters;
use crate::filters::injected::Injected;

/// A field that is `None` inherits the setting of the next wider scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FilterSettings {
    /// Maximum request body size in bytes.
    pub(super) max_body_bytes: Option<OfPolicy<u64>>,
    pub(super) headers: Option<OfPolicy<ChangedHeaders>>,
    pub(super) grpc_web: Option<OfPolicy<bool>>,
    pub(super) fault: Option<OfPolicy<Fault>>,
    /// `Some(None)` if a policy disables compression.
    pub(super) compression: Option<OfPolicy<Option<Compression>>>,
    pub(super) error_pages: Option<OfPolicy<Vec<ErrorPage>>>,
    pub(super) sign_in: Option<OfPolicy<SignIn>>,
    /// Maximum bandwidth in bytes per second.
    pub(super) request_bandwidth: Option<OfPolicy<u64>>,
    /// Maximum bandwidth in bytes per second.
    pub(super) response_bandwidth: Option<OfPolicy<u64>>,
    /// Access checks by the policy or object that requires them. A request must pass every check.
    pub(super) access: BTreeMap<Arc<str>, Arc<AccessCheck>>,
    /// Checks that only report, by policy.
    pub(super) reported: BTreeMap<Arc<str>, Arc<AccessCheck>>,
    /// Checks from which a rule exempts itself, used in explanations.
    pub(super) exempt_from: BTreeSet<String>,
    /// Set only for rules.
    pub(super) own: Option<Arc<OwnFilters>>,
}

/// `policy` has the form `TrafficPolicy/namespace/name`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OfPolicy<T> {
    pub(super) policy: Arc<str>,
    pub(super) value: Arc<T>,
}

impl<T> OfPolicy<T> {
    pub(super) fn new(policy: &Arc<str>, value: Option<T>) -> Option<Self> {
        Some(Self {
            value: Arc::new(value?),
            policy: Arc::clone(policy),
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ChangedHeaders {
    pub(super) request: Option<HeaderModifier>,
    pub(super) response: Option<HeaderModifier>,
}

impl FilterSettings {
    pub(crate) fn without_tokens(settings: &Arc<Self>) -> Arc<Self> {
        if settings.token_checks().next().is_none() {
            return Arc::clone(settings);
        }
        let mut without = Self::clone(settings);
        for check in without.access.values_mut().filter(|it| it.tokens.is_some()) {
            Arc::make_mut(check).tokens = None;
        }
        Arc::new(without)
    }

    /// Returns true if requests must never fall through to another route.
    pub(crate) fn protects(&self) -> bool {
        !self.access.is_empty() || self.max_body_bytes.is_some() || self.headers.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds access checks and keeps the lower limits. Other settings in `self` take precedence.
    pub(crate) fn add(&mut self, wider: &Self) {
        let Self {
            max_body_bytes,
            headers,
            grpc_web,
            fault,
            compression,
            error_pages,
            sign_in,
            request_bandwidth,
            response_bandwidth,
            access,
            reported,
            exempt_from: _,
            own: own_filters,
        } = wider;
        for (own, wider) in [(&mut self.access, access), (&mut self.reported, reported)] {
            let known = wider.iter();
            own.extend(known.map(|(name, check)| (Arc::clone(name), Arc::clone(check))));
        }
        self.own = self.own.take().or_else(|| own_filters.clone());
        self.headers = self.headers.take().or_else(|| headers.clone());
        self.grpc_web = self.grpc_web.take().or_else(|| grpc_web.clone());
        self.fault = self.fault.take().or_else(|| fault.clone());
        self.compression = self.compression.take().or_else(|| compression.clone());
        self.error_pages = self.error_pages.take().or_else(|| error_pages.clone());
        self.sign_in = self.sign_in.take().or_else(|| sign_in.clone());
        for (own, wider) in [
            (&mut self.max_body_bytes, max_body_bytes),
            (&mut self.request_bandwidth, request_bandwidth),
            (&mut self.response_bandwidth, response_bandwidth),
        ] {
            let both = [own.take(), wider.clone()].into_iter().flatten();
            *own = both.min_by_key(|limit| *limit.value);
        }
    }

    pub(super) fn tunes(&self) -> impl Iterator<Item = &'static str> {
        let Self {
            max_body_bytes: _,
            headers,
            grpc_web,
            fault,
            compression,
            error_pages,
            sign_in: _,
            request_bandwidth: _,
            response_bandwidth: _,
            access: _,
            reported: _,
            exempt_from: _,
            own: _,
        } = self;
        let sections = [
            ("headers", headers.is_some()),
            ("grpcWeb", grpc_web.is_some()),
            ("fault", fault.is_some()),
            ("compression", compression.is_some()),
            ("errorPages", error_pages.is_some()),
        ];
        let decided = sections.into_iter().filter(|(_, decided)| *decided);
        decided.map(|(section, _)| section)
    }

    /// Changes to response headers in `rule` override changes in policies.
    pub(crate) fn to_schema(&self, rule: Option<&HeaderModifier>) -> Option<RequestFilters> {
        let headers = self.headers.as_ref().map(|it| &*it.value);
        let [request_headers, mut response_headers] = match headers {
            Some(ChangedHeaders { request, response }) => [request.clone(), response.clone()],
            None => [None, None],
        };
        if let (Some(changes), Some(rule)) = (&mut response_headers, rule) {
            leave_to_rule(changes, rule);
        }
        let filters = RequestFilters {
            max_body_bytes: self.max_body_bytes.as_ref().map_or(0, |it| *it.value),
            request_headers,
            response_headers,
            grpc_web: self.grpc_web.as_ref().is_some_and(|it| *it.value),
            fault: self.fault.as_ref().map(|it| *it.value),
            response: self.response_name().unwrap_or_default(),
            bandwidth: self.bandwidth_name().unwrap_or_default(),
            policies: Vec::new(),
            address_filters: parts(&self.access, |check| check.addresses.clone()),
            tokens: self.tokens(),
            reserved_headers: sorted(self.reserved_headers()),
            authorizations: parts(&self.access, |check| check.authorization.clone()),
            claim_headers: (self.token_checks())
                .flat_map(|check| check.claim_headers.clone())
                .collect(),
            token_headers: sorted(self.removed_headers()),
            exempt_from: Vec::new(),
            credentials: self.credential_set().map_or_else(String::new, |it| it.name),
            csrf: parts(&self.access, |check| check.csrf.clone()),
            reported: self.reported_checks(),
            injected: (self.injected()).map_or_else(String::new, |it| it.pair.name.clone()),
            grpc_json: (self.transcoder()).map_or_else(String::new, |it| it.name.clone()),
            maintenance: self.maintenance().map(|it| Maintenance {
                page: it.page.name.clone(),
                except: it.except.clone(),
            }),
        };
        (filters != RequestFilters::default()).then(|| RequestFilters {
            policies: self.policies(),
            ..filters
        })
    }

    pub(crate) fn shared(&self, is_known: impl Fn(&str) -> bool) -> Vec<SharedFilter> {
        let unknown = |name: Option<String>| name.filter(|name| !is_known(name));
        let response = unknown(self.response_name()).map(|name| SharedFilter {
            name,
            kind: Some(Kind::Response(self.response())),
        });
        let bandwidth = unknown(self.bandwidth_name()).map(|name| SharedFilter {
            name,
            kind: Some(Kind::Bandwidth(self.bandwidth())),
        });
        let tokens = self.token_checks().chain(self.reported_tokens());
        let tokens = tokens.filter(|it| !is_known(&it.name));
        let tokens = tokens.map(|it| SharedFilter {
            name: it.name.clone(),
            kind: Some(Kind::Tokens(it.policy.clone())),
        });
        let reported = self.reported_tokens().map(|it| it.name.clone());
        let policies: Vec<String> = self.tokens().into_iter().chain(reported).collect();
        let set = (policies.len() > 1).then(|| TokenSet::name(&policies));
        let set = unknown(set);
        let set = set.map(|name| SharedFilter {
            name,
            kind: Some(Kind::TokenSet(TokenSet { policies })),
        });
        let credentials = self.credential_set().filter(|it| !is_known(&it.name));
        let injected = self.injected().filter(|it| !is_known(&it.pair.name));
        let injected = injected.map(Injected::to_shared_filter);
        let own = self.shared_own().filter(|it| !is_known(&it.name));
        let own = own.map(|it| SharedFilter::clone(it));
        let filters = response.into_iter().chain(bandwidth).chain(credentials);
        let filters = filters.chain(injected).chain(own);
        filters.chain(tokens).chain(set).collect()
    }

    fn credential_set(&self) -> Option<SharedFilter> {
        let mut checks: Vec<_> = self.credentials().map(|it| it.check.clone()).collect();
        checks.sort_by(|a, b| a.name.cmp(&b.name));
        (!checks.is_empty()).then(|| SharedFilter {
            name: CredentialSet::name(&checks),
            kind: Some(Kind::Credentials(CredentialSet { checks })),
        })
    }

    fn credentials(&self) -> impl Iterator<Item = &Credentials> {
        let checks = self.access.values();
        checks.flat_map(|it| it.users.iter().chain(&it.api_keys))
    }

    /// Returns the secrets of logins.
    pub(crate) fn login_secrets(&self) -> impl Iterator<Item = &Arc<KeyPair>> {
        let checks = self.access.values();
        checks.filter_map(|it| Some(&it.login.as_ref()?.pair))
    }

    /// Returns the credentials that the proxy needs.
    pub(crate) fn key_pairs(&self) -> impl Iterator<Item = &Arc<KeyPair>> {
        let injected = self.injected().map(|it| &it.pair);
        let checked = self.credentials().map(|it| &it.pair);
        checked.chain(self.login_secrets()).chain(injected)
    }

    fn removed_headers(&self) -> impl Iterator<Item = &str> {
        let tokens = self.token_checks().flat_map(|it| &it.token_headers);
        let credentials = self.credentials().flat_map(|it| &it.removed);
        // The backend must not mistake the client's value for the injected one.
        let injected = self.injected().map(|it| &it.header);
        let all = tokens.chain(credentials).chain(injected);
        all.map(String::as_str)
    }

    fn tokens(&self) -> Vec<String> {
        self.token_checks().map(|it| it.name.clone()).collect()
    }

    pub(super) fn token_checks(&self) -> impl Iterator<Item = &TokenCheck> {
        self.access.values().filter_map(|it| it.tokens.as_ref())
    }

    /// These headers are removed from client requests, because clients must not set them.
    pub(super) fn reserved_headers(&self) -> impl Iterator<Item = &str> {
        let headers = self.token_checks().flat_map(|it| &it.claim_headers);
        let claim_headers = headers.map(|it| it.header.as_str());
        let services = self
            .access
            .values()
            .filter_map(|it| it.external_auth.as_ref());
        let identities = self.credentials().filter_map(|it| it.identity.as_deref());
        let policies = claim_headers.chain(identities);
        policies.chain(services.flat_map(headers_set_by))
    }

    /// Returns the policies and other objects that define the settings.
    pub(crate) fn owners(&self) -> impl Iterator<Item = String> {
        let checks = self.access.keys().chain(self.reported.keys());
        let checks = checks.map(ToString::to_string);
        self.policies().into_iter().chain(checks)
    }

    fn policies(&self) -> Vec<String> {
        let Self {
            max_body_bytes,
            headers,
            grpc_web,
            fault,
            compression,
            error_pages,
            sign_in,
            request_bandwidth,
            response_bandwidth,
            // The names of these filters already contain the names of policies and RouteFilters.
            access: _,
            reported: _,
            exempt_from: _,
            own: _,
        } = self;
        let numbers = [max_body_bytes, request_bandwidth, response_bandwidth];
        let numbers = numbers.into_iter().flatten().map(|it| &it.policy);
        let others = [
            headers.as_ref().map(|it| &it.policy),
            grpc_web.as_ref().map(|it| &it.policy),
            fault.as_ref().map(|it| &it.policy),
            compression.as_ref().map(|it| &it.policy),
            error_pages.as_ref().map(|it| &it.policy),
            sign_in.as_ref().map(|it| &it.policy),
        ];
        let all: BTreeSet<&Arc<str>> = numbers.chain(others.into_iter().flatten()).collect();
        all.into_iter().map(ToString::to_string).collect()
    }

    fn response_name(&self) -> Option<String> {
        let compression = self.compression.as_ref();
        let compression = compression.filter(|it| it.value.is_some());
        let pages = self.error_pages.as_ref().filter(|it| !it.value.is_empty());
        name([
            compression.map(|it| (&*it.policy, "compression")),
            pages.map(|it| (&*it.policy, "errorPages")),
            self.sign_in.as_ref().map(|it| (&*it.policy, "signIn")),
        ])
    }

    fn response(&self) -> ResponseFilter {
        let (compression, pages) = (self.compression.as_ref(), self.error_pages.as_ref());
        ResponseFilter {
            compression: compression.and_then(|it| Option::clone(&it.value)),
            error_pages: pages.map_or_else(Vec::new, |it| Vec::clone(&it.value)),
            sign_in: self.sign_in.as_ref().map(|it| SignIn::clone(&it.value)),
        }
    }

    fn bandwidth_name(&self) -> Option<String> {
        let request = self.request_bandwidth.as_ref();
        let response = self.response_bandwidth.as_ref();
        name([
            request.map(|it| (&*it.policy, "request")),
            response.map(|it| (&*it.policy, "response")),
        ])
    }

    fn bandwidth(&self) -> Bandwidth {
        let bytes = |limit: &Option<OfPolicy<u64>>| limit.as_ref().map_or(0, |it| *it.value);
        Bandwidth {
            request_bytes: bytes(&self.request_bandwidth),
            response_bytes: bytes(&self.response_bandwidth),
        }
    }
}

pub(super) fn parts<T>(
    checks: &BTreeMap<Arc<str>, Arc<AccessCheck>>,
    part: impl Fn(&AccessCheck) -> Option<T>,
) -> Vec<T> {
    checks.values().filter_map(|check| part(check)).collect()
}

pub(super) fn sorted<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let names: BTreeSet<&str> = names.collect();
    names.into_iter().map(ToOwned::to_owned).collect()
}

/// Joins names of the form `TrafficPolicy/namespace/name/part`.
fn name<const COUNT: usize>(parts: [Option<(&str, &'static str)>; COUNT]) -> Option<String> {
    let parts = parts.into_iter().flatten();
    let parts: Vec<String> = parts
        .map(|(policy, part)| format!("{policy}/{part}"))
        .collect();
    (!parts.is_empty()).then(|| parts.join(","))
}

pub(super) fn leave_to_rule(changes: &mut HeaderModifier, rule: &HeaderModifier) {
    let HeaderModifier { set, add, remove } = rule;
    let named = set.iter().chain(add).map(|it| &it.name).chain(remove);
    for name in named {
        changes.set.retain(|it| !it.name.eq_ignore_ascii_case(name));
        changes.add.retain(|it| !it.name.eq_ignore_ascii_case(name));
        changes.remove.retain(|it| !it.eq_ignore_ascii_case(name));
    }
}
