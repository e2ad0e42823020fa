//! Client address filters.

use std::net::IpAddr;

use sesame_proto::schema::{AddressFilter, AddressRange, RequestFilters};

use sesame_proto::network::Network;

/// Returns the name of the filter that rejects a client, if any. The client address is also used as
/// the peer address of the connection.
pub(super) fn refusing(filters: &RequestFilters, client: Option<IpAddr>) -> Option<&str> {
    let client = client?;
    let holds = |ranges: &[AddressRange]| {
        ranges.iter().any(|range| {
            let network = range.network.parse::<Network>();
            network.is_ok_and(|network| network.holds(client))
        })
    };
    let mut filters = filters.address_filters.iter();
    let refused = |AddressFilter { allow, deny, .. }: &&AddressFilter| {
        holds(deny) || !(allow.is_empty() || holds(allow))
    };
    filters.find(refused).map(|filter| filter.name.as_str())
}
