//! Reads an AccessPolicy. Every setting is protective, so requests are rejected if any setting is
//! invalid.

use std::sync::Arc;

use sesame_proto::network::Network;
use sesame_proto::schema::{self, AddressFilter, AddressRange, Authorization};

use super::authorization;
use super::jwt::{self, TokenCheck};
use super::of_kind::CheckedPolicy;
use crate::api::{
    AccessExemption, AccessPolicy, AccessPolicySpec, AddressSource, ExtAuth, IpFilter,
};
use crate::resolve::backends::Backends;
use crate::resolve::context::ResolveContext;
use crate::resolve::context::grants::Referrer;
use crate::resolve::filters::external_auth;
use crate::resolve::policies::targets::PolicyTargets;
use crate::resolve::syntax::limits;
use crate::world::Kind;

/// Maximum number of exempt objects per policy.
const MAX_EXEMPTIONS: usize = 16;

/// The access checks of an AccessPolicy, and the objects that are exempt from them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AccessCheck {
    pub(super) addresses: Option<AddressFilter>,
    pub(super) tokens: Option<TokenCheck>,
    pub(super) authorization: Option<Authorization>,
    /// Authorization service that must allow requests.
    pub(super) external_auth: Option<schema::ExternalAuth>,
    /// Exempt objects, as `HTTPRoute/namespace/name`.
    pub(super) exempt: Vec<String>,
}

impl AccessCheck {
    /// Returns true if the route, as `HTTPRoute/namespace/name`, is exempt.
    pub(super) fn exempts(&self, route: &str) -> bool {
        self.exempt.iter().any(|it| it == route)
    }

    /// Creates a check that consists of these tokens.
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
    let mut checked = CheckedPolicy::new(metadata, &spec.target_refs, targets, cx);
    let policy = Kind::AccessPolicy.named(metadata.key()).to_string();
    let read = read(&policy, &metadata.namespace, spec, cx).and_then(|check| {
        let service = spec.ext_auth.as_ref();
        let service = service.map(|it| ask(&policy, it, &metadata.namespace, backends, cx));
        Ok(AccessCheck {
            external_auth: service.transpose()?,
            ..check
        })
    });
    let read = read.map_err(|why| format!("spec{why}"));
    if let Some(check) = checked.protecting(read) {
        let access = &mut checked.settings.filters.access;
        access.insert(policy.into(), Arc::new(check));
    }
    checked
}

/// Reads a policy's authorization service. Errors start with the field path relative to `spec`.
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

/// Kinds of objects that a policy can exempt.
const EXEMPTED: [Kind; 4] = [
    Kind::HttpRoute,
    Kind::GrpcRoute,
    Kind::HttpProxy,
    Kind::Ingress,
];

/// Reads a policy's access checks, and validates its exemptions. Errors start with the field path
/// relative to `spec`.
fn read(
    policy: &str,
    namespace: &str,
    spec: &AccessPolicySpec,
    cx: &mut ResolveContext<'_, '_>,
) -> Result<AccessCheck, String> {
    let AccessPolicySpec {
        target_refs,
        ip_filter,
        jwt,
        authorization,
        ext_auth,
        exemptions,
    } = spec;
    let kinds = target_refs.iter().map(|it| it.kind.as_str());
    check_exemptions(exemptions, kinds)?;
    let is_empty = ip_filter.is_none() && jwt.is_none() && authorization.is_none();
    if is_empty && ext_auth.is_none() {
        return Err(": expected ipFilter, jwt, authorization or extAuth".to_owned());
    }
    let addresses = ip_filter.as_ref().map(|it| read_addresses(policy, it));
    let tokens = jwt.as_ref();
    let tokens = tokens.map(|it| jwt::read(policy, it, namespace, cx));
    let tokens = tokens.transpose()?;
    let rules = authorization.as_ref();
    let rules = rules.map(|it| authorization::read(policy, it, tokens.as_ref()));
    let exempt = exemptions.iter();
    Ok(AccessCheck {
        addresses: addresses.transpose()?,
        authorization: rules.transpose()?,
        external_auth: None,
        tokens,
        exempt: exempt.map(|it| exempted(it, namespace)).collect(),
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

/// Formats an exempt object as `Kind/namespace/name`. The namespace defaults to `own`.
fn exempted(exemption: &AccessExemption, own: &str) -> String {
    let AccessExemption {
        kind,
        namespace,
        name,
    } = exemption;
    let namespace = namespace.as_deref().unwrap_or(own);
    format!("{kind}/{namespace}/{name}")
}

/// Reads a policy's address filter. Errors start with the field path relative to `spec`.
fn read_addresses(policy: &str, spec: &IpFilter) -> Result<AddressFilter, String> {
    let IpFilter {
        allow,
        deny,
        source,
    } = spec;
    if allow.is_empty() && deny.is_empty() {
        return Err(".ipFilter: expected allow or deny".to_owned());
    }
    let peer = match source {
        None | Some(AddressSource::Client) => false,
        Some(AddressSource::Peer) => true,
        Some(AddressSource::Other(other)) => {
            let known = AddressSource::WORDS.join(" or ");
            return Err(format!(
                ".ipFilter.source {other:?} is unknown; expected {known}"
            ));
        }
    };
    Ok(AddressFilter {
        name: policy.to_owned(),
        allow: read_networks(".ipFilter.allow", allow, peer)?,
        deny: read_networks(".ipFilter.deny", deny, peer)?,
    })
}

pub(super) fn read_networks(
    field: &str,
    networks: &[String],
    peer: bool,
) -> Result<Vec<AddressRange>, String> {
    limits::entries(field, networks.len(), 0..=limits::MAX_NETWORKS)?;
    let networks = networks.iter().enumerate().map(|(i, text)| {
        let network = text.parse::<Network>();
        let network = network.map_err(|why| format!("{field}[{i}] {why}"))?;
        Ok::<_, String>(AddressRange {
            network: network.to_string(),
            peer,
        })
    });
    networks.collect()
}
