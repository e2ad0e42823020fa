//! Client address filters in HTTPProxies. A virtual host's filter applies to its routes that have
//! no filter.

use std::sync::Arc;

use sesame_proto::network::Network;
use sesame_proto::schema::{AddressFilter, AddressRange};

use super::roots::Root;
use super::rules::{ReadRoute, RouteFault};
use super::tree::Place;
use crate::policies::traffic::filters::FilterSettings;
use crate::syntax::limits;
use sesame_kinds::api::{NamespacedName, ProxyAddressRange, ProxyRoute};
use sesame_kinds::world::Kind;

pub(super) type ReadAddresses = Result<Option<Arc<FilterSettings>>, RouteFault>;

pub(super) fn of_host(root: &Root<'_>) -> ReadAddresses {
    let host = root.virtualhost;
    read(
        &root.name,
        "ipFilter",
        &host.ip_allow_policy,
        &host.ip_deny_policy,
    )
}

impl ReadRoute<'_> {
    /// If the filter is invalid, the route responds with an error.
    pub(super) fn admit(
        &mut self,
        host: &ReadAddresses,
        place: &Place<'_>,
        (index, route): (usize, &ProxyRoute),
    ) {
        let (allow, deny) = (&route.ip_allow_policy, &route.ip_deny_policy);
        let at = format!("routes/{index}/ipFilter");
        let own = read(&place.name, &at, allow, deny).transpose();
        match own.unwrap_or_else(|| host.clone().map(Option::unwrap_or_default)) {
            Ok(filters) => {
                self.rule.protects |= filters.protects();
                self.rule.filters = Some(filters).filter(|it| !it.is_empty());
            }
            Err(fault) => self.refuse(index, fault),
        }
    }
}

fn read(
    proxy: &NamespacedName,
    place: &str,
    allow: &[ProxyAddressRange],
    deny: &[ProxyAddressRange],
) -> ReadAddresses {
    if allow.is_empty() && deny.is_empty() {
        return Ok(None);
    }
    if !allow.is_empty() && !deny.is_empty() {
        let why = "expected either ipAllowPolicy or ipDenyPolicy, not both";
        let code = ("IPFilterError", "IncompatibleIPAddressFilters");
        return Err((code, why.to_owned()));
    }
    let networks = |field: &str, list: &[ProxyAddressRange]| {
        ranges(field, list).map_err(|why| (("IPFilterError", "InvalidCIDR"), why))
    };
    let filter = AddressFilter {
        name: format!("{}/{place}", Kind::HttpProxy.named(proxy.clone())),
        allow: networks("ipAllowPolicy", allow)?,
        deny: networks("ipDenyPolicy", deny)?,
    };
    Ok(Some(Arc::new(FilterSettings::of_addresses(filter))))
}

fn ranges(field: &str, list: &[ProxyAddressRange]) -> Result<Vec<AddressRange>, String> {
    limits::entries(field, list.len(), 0..=limits::MAX_NETWORKS)?;
    let ranges = list.iter().enumerate().map(|(i, range)| {
        let ProxyAddressRange { source, cidr } = range;
        let peer = match source.as_str() {
            "Peer" => true,
            "Remote" => false,
            _ => {
                return Err(format!(
                    "{field}[{i}].source {source:?}: expected Peer or Remote"
                ));
            }
        };
        // As in Contour, the prefix length is optional.
        let network = Network::of_host_or_network(cidr);
        let network = network.map_err(|why| format!("{field}[{i}].cidr {why}"))?;
        let network = network.to_string();
        Ok(AddressRange { network, peer })
    });
    ranges.collect()
}
