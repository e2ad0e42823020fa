//! A second Gateway, of another class, that leads clients to a Gateway (`spec.publishing.type: UpstreamGateway`). Pure.
//!
//! It has a TCP or UDP listener for each port of the Gateway, and a TCPRoute or UDPRoute from each
//! to the Gateway's Service, which has a cluster IP. Its addresses and problems are copied to the
//! Gateway ([`addresses`]). Cycles are impossible: it has another class, and a second Gateway never
//! gets another one.

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

/// End of the name of a second Gateway.
const END: &str = "-upstream";
/// Kinds of routes to a Gateway, which a cluster may lack.
pub(super) const ROUTES: [OwnedKind; 2] = [OwnedKind::TcpRoute, OwnedKind::UdpRoute];

/// Returns the name of a Gateway's second one.
fn name(basis: &Basis) -> NamespacedName {
    let name = format!("{}{END}", beginning_of_names(basis, END.len()));
    NamespacedName::new(&basis.gateway.namespace, &name)
}

/// Returns true if any Gateway should have a second one.
pub(super) fn is_wanted(settings: &BTreeMap<NamespacedName, GatewaySettings>) -> bool {
    let mut all = settings.values();
    all.any(|settings| *settings.publishing_type() == PublishingType::UpstreamGateway)
}
