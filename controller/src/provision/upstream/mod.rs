//! A second Gateway, of another class, that forwards clients to a Gateway (`spec.publishing.type:
//! UpstreamGateway`). Pure.
//!
//! The second Gateway has a TCP or UDP listener for each port of the Gateway. From each listener, a
//! TCPRoute or UDPRoute leads to the Gateway's Service, which has a cluster IP. Its addresses and
//! problems are copied to the status of the Gateway ([`addresses`]). Cycles are impossible, because
//! the second Gateway has another class and never gets a second Gateway of its own.

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

/// Suffix of the name of a second Gateway.
const END: &str = "-upstream";
/// Kinds of routes of a second Gateway, which a cluster may lack.
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
