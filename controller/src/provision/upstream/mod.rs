//! Builds a second Gateway of another class, which forwards clients to a Gateway's Service. A
//! second Gateway never gets a second Gateway itself, so there are no cycles.

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
use sesame_kinds::api::{NamespacedName, PublishingType};
use sesame_resolver::settings::GatewaySettings;

const END: &str = "-upstream";
/// Some clusters do not serve these kinds.
pub(super) const ROUTES: [OwnedKind; 2] = [OwnedKind::TcpRoute, OwnedKind::UdpRoute];

fn name(basis: &Basis) -> NamespacedName {
    let name = format!("{}{END}", beginning_of_names(basis, END.len()));
    NamespacedName::new(&basis.gateway.namespace, &name)
}

pub(super) fn is_wanted(settings: &BTreeMap<NamespacedName, GatewaySettings>) -> bool {
    let mut all = settings.values();
    all.any(|settings| *settings.publishing_type() == PublishingType::UpstreamGateway)
}
