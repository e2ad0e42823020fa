//! Reads an AccessPolicy. It refuses requests if any part is invalid, because all of them protect.

use std::sync::Arc;

use sesame_proto::refusal;
use sesame_proto::schema::{AddressFilter, AddressRange};

use super::TrafficSettings;
use super::filters::AddressCheck;
use super::of_kind::CheckedPolicy;
use crate::api::{
    AccessExemption, AccessPolicy, AccessPolicySpec, AddressSource, IpFilter, Network,
};
use crate::resolve::context::ResolveContext;
use crate::resolve::policies::targets::PolicyTargets;
use crate::resolve::syntax::limits;
use crate::status::{Reason, Verdict};
use crate::world::Kind;

/// Largest number of exempted objects.
const MOST_EXEMPTIONS: usize = 16;
/// Largest number of networks in a list.
const MOST_NETWORKS: usize = 128;

pub(super) fn check<'w>(
    object: &'w AccessPolicy,
    targets: &mut PolicyTargets<'w>,
    cx: &mut ResolveContext<'w, '_>,
) -> CheckedPolicy<'w> {
    let AccessPolicySpec {
        target_refs,
        // Read below.
        ip_filter: _,
        exemptions,
    } = &object.spec;
    let mut accepted = Verdict::default();
    let mut settings = TrafficSettings::default();
    let unknown = object.metadata.unknown.refusal("");
    settings.refuses = unknown.is_some();
    accepted.refuse_if(Reason::UnsupportedValue, unknown);
    targets.add(&object.metadata, target_refs, &mut accepted, cx);
    let name: Arc<str> = (Kind::AccessPolicy.named(object.metadata.key()).to_string()).into();
    let read = read(&name, object);
    let exempt = exemptions.iter().map(|it| exempted(it, object)).collect();
    match read {
        Ok(filter) => {
            let check = AddressCheck { filter, exempt };
            settings.filters.addresses.insert(name, Arc::new(check));
        }
        Err(why) => {
            let status = refusal::HTTP;
            let why = format!("spec{why}; requests to the targets are answered with {status}");
            accepted.refuse(Reason::Invalid, why);
            settings.refuses = true;
        }
    }
    CheckedPolicy {
        metadata: &object.metadata,
        accepted,
        settings,
        limits: Vec::new(),
    }
}

/// Kinds of objects that a policy may exempt.
const EXEMPTED: [Kind; 4] = [
    Kind::HttpRoute,
    Kind::GrpcRoute,
    Kind::HttpProxy,
    Kind::Ingress,
];

/// Reads the filter of a policy, whose exemptions must be valid. The error names the field below
/// `spec`.
fn read(name: &str, object: &AccessPolicy) -> Result<AddressFilter, String> {
    let AccessPolicySpec {
        target_refs,
        ip_filter,
        exemptions,
    } = &object.spec;
    limits::entries(".exemptions", exemptions.len(), 0..=MOST_EXEMPTIONS)?;
    let mut kinds = target_refs.iter().map(|it| it.kind.as_str());
    if !exemptions.is_empty() && !kinds.all(|it| matches!(it, "Gateway" | "ListenerSet")) {
        return Err(
            ".exemptions: expected only with targets of kind Gateway or ListenerSet".to_owned(),
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
    match ip_filter {
        Some(spec) => read_addresses(name, spec),
        None => Err(": expected ipFilter".to_owned()),
    }
}

/// Returns an exempted object as `Kind/namespace/name`.
fn exempted(exemption: &AccessExemption, policy: &AccessPolicy) -> String {
    let AccessExemption {
        kind,
        namespace,
        name,
    } = exemption;
    let own = policy.metadata.namespace.as_str();
    let namespace = namespace.as_deref().unwrap_or(own);
    format!("{kind}/{namespace}/{name}")
}

/// Reads the filter of a policy with this name. The error names the field below `spec`.
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

fn read_networks(
    field: &str,
    networks: &[String],
    peer: bool,
) -> Result<Vec<AddressRange>, String> {
    limits::entries(field, networks.len(), 0..=MOST_NETWORKS)?;
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
