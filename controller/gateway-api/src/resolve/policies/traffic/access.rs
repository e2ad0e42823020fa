//! Reads an AccessPolicy. It refuses requests if any part is invalid, because all of them protect.

use std::sync::Arc;

use sesame_proto::refusal;
use sesame_proto::schema::{AddressFilter, AddressRange};

use super::TrafficSettings;
use super::of_kind::CheckedPolicy;
use crate::api::{AccessPolicy, AccessPolicySpec, AddressSource, IpFilter, Network};
use crate::resolve::context::ResolveContext;
use crate::resolve::policies::targets::PolicyTargets;
use crate::resolve::syntax::limits;
use crate::status::{Reason, Verdict};
use crate::world::Kind;

/// Largest number of networks in a list.
const MOST_NETWORKS: usize = 128;

pub(super) fn check<'w>(
    object: &'w AccessPolicy,
    targets: &mut PolicyTargets<'w>,
    cx: &mut ResolveContext<'w, '_>,
) -> CheckedPolicy<'w> {
    let AccessPolicySpec {
        target_refs,
        ip_filter,
    } = &object.spec;
    let mut accepted = Verdict::default();
    let mut settings = TrafficSettings::default();
    let unknown = object.metadata.unknown.refusal("");
    settings.refuses = unknown.is_some();
    accepted.refuse_if(Reason::UnsupportedValue, unknown);
    targets.add(&object.metadata, target_refs, &mut accepted, cx);
    let name: Arc<str> = (Kind::AccessPolicy.named(object.metadata.key()).to_string()).into();
    match ip_filter.as_ref().map(|spec| read_addresses(&name, spec)) {
        Some(Ok(filter)) => {
            settings.filters.addresses.insert(name, Arc::new(filter));
        }
        fault => {
            let why = match fault {
                Some(Err(why)) => why,
                _ => ": expected ipFilter".to_owned(),
            };
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
