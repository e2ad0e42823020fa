//! Reads an AccessPolicy. It refuses requests if any part is invalid, because all of them protect.

use std::sync::Arc;

use sesame_proto::network::Network;
use sesame_proto::schema::{AddressFilter, AddressRange};

use super::filters::AddressCheck;
use super::of_kind::CheckedPolicy;
use crate::api::{AccessExemption, AccessPolicy, AccessPolicySpec, AddressSource, IpFilter};
use crate::resolve::context::ResolveContext;
use crate::resolve::policies::targets::PolicyTargets;
use crate::resolve::syntax::limits;
use crate::world::Kind;

/// Largest number of exempted objects.
const MOST_EXEMPTIONS: usize = 16;

pub(super) fn check<'w>(
    object: &'w AccessPolicy,
    targets: &mut PolicyTargets<'w>,
    cx: &mut ResolveContext<'w, '_>,
) -> CheckedPolicy<'w> {
    let (metadata, spec) = (&object.metadata, &object.spec);
    let mut checked = CheckedPolicy::new(metadata, &spec.target_refs, targets, cx);
    let name: Arc<str> = Kind::AccessPolicy.named(metadata.key()).to_string().into();
    let read = read(&name, spec).map_err(|why| format!("spec{why}"));
    if let Some(filter) = checked.protecting(read) {
        let exempt = spec.exemptions.iter();
        let exempt = exempt.map(|it| exempted(it, &metadata.namespace)).collect();
        let check = Arc::new(AddressCheck { filter, exempt });
        checked.settings.filters.addresses.insert(name, check);
    }
    checked
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
fn read(name: &str, spec: &AccessPolicySpec) -> Result<AddressFilter, String> {
    let AccessPolicySpec {
        target_refs,
        ip_filter,
        exemptions,
    } = spec;
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

/// Returns an exempted object as `Kind/namespace/name`, by default in this namespace.
fn exempted(exemption: &AccessExemption, own: &str) -> String {
    let AccessExemption {
        kind,
        namespace,
        name,
    } = exemption;
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
