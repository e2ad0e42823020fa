//! Reads an AccessPolicy. If any setting is invalid, requests are rejected, because every setting
//! is protective.

use std::sync::Arc;

use sesame_proto::schema::{self, AddressFilter, Authorization, Csrf};

use super::addresses::read_addresses;
use super::authorization;
use super::connections::{self, ConnectionChecks};
use super::credentials::{self, Credentials};
use super::csrf;
use super::jwt::{self, TokenCheck};
use super::of_kind::CheckedPolicy;
use super::oidc::{self, Login};
use super::reported;
use crate::backends::Backends;
use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use crate::filters::external_auth;
use crate::policies::targets::PolicyTargets;
use crate::syntax::limits;
use sesame_kinds::api::{AccessExemption, AccessPart, AccessPolicy, AccessPolicySpec, ExtAuth};
use sesame_kinds::world::Kind;

const MAX_EXEMPTIONS: usize = 16;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AccessCheck {
    pub(super) addresses: Option<AddressFilter>,
    pub(super) users: Option<Credentials>,
    pub(super) api_keys: Option<Credentials>,
    pub(super) csrf: Option<Csrf>,
    pub(super) login: Option<Login>,
    pub(super) tokens: Option<TokenCheck>,
    pub(super) authorization: Option<Authorization>,
    pub(super) external_auth: Option<schema::ExternalAuth>,
    /// Exempt routes as `HTTPRoute/namespace/name`, each with the parts that do not apply to it.
    pub(super) exempt: Vec<(String, Vec<AccessPart>)>,
}

impl AccessCheck {
    pub(super) fn exempts(&self, route: &str) -> impl Iterator<Item = AccessPart> {
        let exempt = self
            .exempt
            .iter()
            .filter(move |(object, _)| object == route);
        exempt.flat_map(|(_, parts)| parts.iter().copied())
    }

    pub(super) fn has(&self, part: AccessPart) -> bool {
        match part {
            AccessPart::IpFilter => self.addresses.is_some(),
            AccessPart::BasicAuth => self.users.is_some(),
            AccessPart::ApiKeyAuth => self.api_keys.is_some(),
            AccessPart::Csrf => self.csrf.is_some(),
            AccessPart::Oidc => self.login.is_some(),
            AccessPart::Jwt => self.tokens.is_some(),
            AccessPart::Authorization => self.authorization.is_some(),
            AccessPart::ExtAuth => self.external_auth.is_some(),
        }
    }

    pub(super) fn of_route(&self, route: &str) -> Self {
        let mut check = self.clone();
        for part in self.exempts(route) {
            match part {
                AccessPart::IpFilter => check.addresses = None,
                AccessPart::BasicAuth => check.users = None,
                AccessPart::ApiKeyAuth => check.api_keys = None,
                AccessPart::Csrf => check.csrf = None,
                AccessPart::Oidc => check.login = None,
                AccessPart::Jwt => check.tokens = None,
                AccessPart::Authorization => check.authorization = None,
                AccessPart::ExtAuth => check.external_auth = None,
            }
        }
        check
    }

    /// `exempt` clients need no password.
    pub(crate) fn of_users(mut users: Credentials, exempt: Option<AddressFilter>) -> Self {
        users.check.exempt_clients = exempt;
        Self {
            users: Some(users),
            ..Self::default()
        }
    }

    pub(crate) fn of_tokens(tokens: TokenCheck) -> Self {
        Self {
            tokens: Some(tokens),
            ..Self::default()
        }
    }
}

pub(super) fn check<'w>(
    object: &'w AccessPolicy,
    targets: &mut PolicyTargets<'w>,
    backends: &mut Backends<'w>,
    cx: &mut ResolveContext<'w, '_>,
) -> CheckedPolicy<'w> {
    let (metadata, spec) = (&object.metadata, &object.spec);
    let reports = reported::reports(spec.mode.as_ref());
    if reports == Ok(true) {
        return reported::check(object, targets, backends, cx);
    }
    let mut checked = CheckedPolicy::new(metadata, &spec.target_refs, targets, cx);
    let policy = Kind::AccessPolicy.named(metadata.key()).to_string();
    checked.http_only = connections::http_only(spec, &metadata.unknown);
    let shared = reports.and_then(|_| read_shared(&policy, &metadata.namespace, spec, cx));
    let http_only = AccessPart::HTTP_ONLY.map(AccessPart::as_str);
    let unknown = metadata.unknown.refusal_outside(&http_only);
    let connections = shared.as_ref().ok().filter(|_| unknown.is_none());
    checked.settings.connections = ConnectionChecks::of_policy(&policy, connections.cloned());
    let read = shared.and_then(|check| {
        let namespace = &metadata.namespace;
        read_requests(&policy, namespace, spec, check, backends, cx)
    });
    let read = read.map_err(|why| format!("spec{why}"));
    let consequence = connections::refused_traffic(&spec.target_refs);
    if let Some(check) = checked.protecting_from(read, &consequence) {
        let access = &mut checked.settings.filters.access;
        access.insert(policy.into(), Arc::new(check));
    }
    checked
}

fn ask<'w>(
    policy: &str,
    spec: &ExtAuth,
    namespace: &str,
    backends: &mut Backends<'w>,
    cx: &ResolveContext<'w, '_>,
) -> Result<schema::ExternalAuth, String> {
    let ExtAuth {
        protocol,
        backend_ref,
        grpc,
        http,
        forward_body,
    } = spec;
    let settings = (protocol.as_str(), grpc.as_ref(), http.as_ref());
    let read = external_auth::read_settings(settings, forward_body.as_ref());
    let (traffic, asks) = read.map_err(|why| format!(".extAuth.{why}"))?;
    let referrer = Referrer {
        group: Kind::AccessPolicy.group(),
        kind: Kind::AccessPolicy.as_str(),
        namespace,
    };
    let backend = backends.resolve_service(referrer, backend_ref, traffic, cx);
    let backend = backend.map_err(|(_, why)| format!(".extAuth.backendRef: {why}"))?;
    Ok(schema::ExternalAuth {
        backend,
        policy: policy.to_owned(),
        ..asks
    })
}

const EXEMPTED: [Kind; 7] = [
    Kind::HttpRoute,
    Kind::GrpcRoute,
    Kind::TlsRoute,
    Kind::TcpRoute,
    Kind::UdpRoute,
    Kind::HttpProxy,
    Kind::Ingress,
];

/// Reads the parts that also apply to layer 4 routes.
pub(super) fn read_shared(
    policy: &str,
    namespace: &str,
    spec: &AccessPolicySpec,
    cx: &ResolveContext<'_, '_>,
) -> Result<AccessCheck, String> {
    let AccessPolicySpec {
        target_refs,
        mode: _,
        ip_filter,
        exemptions,
        // Read by `read_requests`.
        basic_auth: _,
        api_key_auth: _,
        csrf: _,
        oidc: _,
        jwt: _,
        authorization: _,
        ext_auth: _,
    } = spec;
    let kinds = target_refs.iter().map(|it| it.kind.as_str());
    check_exemptions(exemptions, kinds)?;
    if !AccessPart::ALL.into_iter().any(|part| spec.has(part)) {
        let known = AccessPart::ALL.map(AccessPart::as_str).join(", ");
        return Err(format!(": expected at least one of {known}"));
    }
    let addresses = ip_filter.as_ref();
    let addresses = addresses.map(|it| read_addresses(policy, it, namespace, cx));
    let exempt = exemptions.iter().enumerate().map(|(i, it)| {
        let parts = read_parts(it);
        let parts = parts.map_err(|why| format!(".exemptions[{i}].parts{why}"))?;
        Ok::<_, String>((exempted(it, namespace), parts))
    });
    Ok(AccessCheck {
        exempt: exempt.collect::<Result<_, _>>()?,
        addresses: addresses.transpose()?,
        ..AccessCheck::default()
    })
}

/// Adds the parts that apply only to HTTP.
pub(super) fn read_requests<'w>(
    policy: &str,
    namespace: &str,
    spec: &AccessPolicySpec,
    shared: AccessCheck,
    backends: &mut Backends<'w>,
    cx: &mut ResolveContext<'w, '_>,
) -> Result<AccessCheck, String> {
    let users = spec.basic_auth.as_ref();
    let users = users.map(|it| credentials::read_basic(policy, it, namespace, cx));
    let api_keys = spec.api_key_auth.as_ref();
    let api_keys = api_keys.map(|it| credentials::read_keys(policy, it, namespace, cx));
    let csrf = spec.csrf.as_ref().map(|it| csrf::read(policy, it));
    let login = spec.oidc.as_ref();
    let login = login.map(|it| oidc::read(policy, it, namespace, backends, cx));
    let tokens = spec.jwt.as_ref();
    let tokens = tokens.map(|it| jwt::read(policy, it, namespace, cx));
    let tokens = tokens.transpose()?;
    let rules = spec.authorization.as_ref();
    let rules = rules.map(|it| authorization::read(policy, it, tokens.as_ref()));
    let rules = rules.transpose()?;
    let matches_claims = |it: &Authorization| it.rules.iter().any(|it| !it.claims.is_empty());
    if rules.as_ref().is_some_and(matches_claims) {
        check_exempt_from_tokens(&shared)?;
    }
    let external_auth = spec.ext_auth.as_ref();
    let external_auth = external_auth.map(|it| ask(policy, it, namespace, backends, cx));
    Ok(AccessCheck {
        users: users.transpose()?,
        api_keys: api_keys.transpose()?,
        csrf: csrf.transpose()?,
        login: login.transpose()?,
        authorization: rules,
        tokens,
        external_auth: external_auth.transpose()?,
        ..shared
    })
}

fn check_exemptions<'s>(
    exemptions: &[AccessExemption],
    mut targets: impl Iterator<Item = &'s str>,
) -> Result<(), String> {
    limits::entries(".exemptions", exemptions.len(), 0..=MAX_EXEMPTIONS)?;
    if !exemptions.is_empty() && !targets.all(|it| matches!(it, "Gateway" | "ListenerSet")) {
        return Err(
            ".exemptions: allowed only with targets of kind Gateway or ListenerSet".to_owned(),
        );
    }
    for (i, AccessExemption { kind, .. }) in exemptions.iter().enumerate() {
        if !EXEMPTED.iter().any(|it| it.as_str() == kind) {
            let known = EXEMPTED.map(Kind::as_str).join(", ");
            return Err(format!(
                ".exemptions[{i}].kind {kind:?} is not supported; expected one of {known}"
            ));
        }
    }
    Ok(())
}

fn read_parts(exemption: &AccessExemption) -> Result<Vec<AccessPart>, String> {
    if exemption.parts.is_empty() {
        return Ok(AccessPart::ALL.to_vec());
    }
    let parts = exemption.parts.iter().enumerate().map(|(i, name)| {
        let part = AccessPart::ALL.into_iter().find(|it| it.as_str() == name);
        part.ok_or_else(|| {
            let known = AccessPart::ALL.map(AccessPart::as_str).join(", ");
            format!("[{i}] {name:?} is unknown; expected {known}")
        })
    });
    parts.collect()
}

fn check_exempt_from_tokens(check: &AccessCheck) -> Result<(), String> {
    for (i, (_, parts)) in check.exempt.iter().enumerate() {
        let has = |part| parts.contains(&part);
        if has(AccessPart::Jwt) && !has(AccessPart::Authorization) {
            return Err(format!(
                ".exemptions[{i}].parts: authorization rules match token claims, so exempt the \
                 route from authorization as well"
            ));
        }
    }
    Ok(())
}

fn exempted(exemption: &AccessExemption, own: &str) -> String {
    let AccessExemption {
        kind,
        namespace,
        name,
        parts: _,
    } = exemption;
    let namespace = namespace.as_deref().unwrap_or(own);
    format!("{kind}/{namespace}/{name}")
}

/// Excludes headers that are also sent to the service, because the service must see the client's
/// values.
pub(super) fn headers_set_by(auth: &schema::ExternalAuth) -> impl Iterator<Item = &str> {
    let http = match &auth.protocol {
        Some(schema::external_auth::Protocol::Http(http)) => Some(http),
        _ => None,
    };
    http.into_iter().flat_map(|http| {
        let is_sent =
            |name: &&String| *name == "authorization" || http.request_headers.contains(name);
        let only_set = http
            .response_headers
            .iter()
            .filter(move |name| !is_sent(name));
        only_set.map(String::as_str)
    })
}
