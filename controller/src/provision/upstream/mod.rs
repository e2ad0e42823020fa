//! Builds a second Gateway of another class, which forwards clients to a Gateway
//! (`spec.publishing.type: UpstreamGateway`). Pure.
//!
//! The second Gateway has a TCP or UDP listener for each port of the Gateway. A TCPRoute or
//! UDPRoute connects each listener to the Gateway's Service, which has a cluster IP. The second
//! Gateway's addresses and problems are copied to the first Gateway's status ([`addresses`]). A
//! second Gateway has another class and never gets a second Gateway itself, so there are no cycles.

mod addresses;
mod claims;
mod objects;
#[cfg(test)]
mod tests;

pub(super) use self::addresses::addresses;
pub(super) use self::claims::claim_upstream;

use std::collections::BTreeMap;

use super::Basis;
use super::kinds::OwnedKind;
use super::owned::beginning_of_names;
use sesame_gateway_api::api::{NamespacedName, PublishingType};
use sesame_gateway_api::resolve::settings::GatewaySettings;

/// Suffix of a second Gateway's name.
const END: &str = "-upstream";
/// Kinds of the second Gateway's routes. Some clusters do not serve them.
pub(super) const ROUTES: [OwnedKind; 2] = [OwnedKind::TcpRoute, OwnedKind::UdpRoute];

/// Returns the name of a Gateway's second Gateway.
fn name(basis: &Basis) -> NamespacedName {
    let name = format!("{}{END}", beginning_of_names(basis, END.len()));
    NamespacedName::new(&basis.gateway.namespace, &name)
}

/// Returns true if any Gateway should have a second Gateway.
pub(super) fn is_wanted(settings: &BTreeMap<NamespacedName, GatewaySettings>) -> bool {
    let mut all = settings.values();
    all.any(|settings| *settings.publishing_type() == PublishingType::UpstreamGateway)
}
