//! The bytes of an encoded snapshot, split by how often they change.

use bytes::Bytes;

use crate::schema::Snapshot;
use crate::wire::{self, numbers};

/// Compares pointers first, because unchanged parts are shared.
pub(super) fn is_same(one: &[u8], other: &[u8]) -> bool {
    std::ptr::eq(one, other) || one == other
}

/// Concatenating all parts gives the encoded snapshot.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    /// Fields that precede the route tables in the schema.
    pub(super) ahead: Bytes,
    pub(super) route_tables: Bytes,
    pub(super) backends: Bytes,
    /// All other fields except the endpoints.
    pub(super) behind: Bytes,
    pub(super) endpoints: Bytes,
}

impl PartialEq for Parts {
    fn eq(&self, other: &Self) -> bool {
        let mut pairs = self.all().into_iter().zip(other.all());
        pairs.all(|(one, other)| is_same(one, other))
    }
}

impl Eq for Parts {}

impl Parts {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let Snapshot {
            gateway,
            addresses,
            ports,
            route_tables,
            backends,
            endpoints,
            keys,
            trust_bundles,
            edge,
            rotation,
            tracing,
            log_output,
            measured_routes,
            rate_limits,
            shared_filters,
            filters,
        } = snapshot;
        // Encode each field separately, because a `Snapshot` per part would require clones.
        let (mut ahead, mut behind) = (Vec::new(), Vec::new());
        if !gateway.is_empty() {
            wire::append(numbers::snapshot::GATEWAY, gateway.as_bytes(), &mut ahead);
        }
        for address in addresses {
            wire::append(numbers::snapshot::ADDRESSES, address.as_bytes(), &mut ahead);
        }
        wire::append_messages(numbers::snapshot::PORTS, ports, &mut ahead);
        wire::append_messages(numbers::snapshot::KEYS, keys, &mut behind);
        wire::append_messages(numbers::snapshot::TRUST_BUNDLES, trust_bundles, &mut behind);
        wire::append_messages(numbers::snapshot::EDGE, edge, &mut behind);
        wire::append_messages(numbers::snapshot::ROTATION, rotation, &mut behind);
        wire::append_messages(numbers::snapshot::TRACING, tracing, &mut behind);
        wire::append_messages(numbers::snapshot::LOG_OUTPUT, log_output, &mut behind);
        for route in measured_routes {
            wire::append(
                numbers::snapshot::MEASURED_ROUTES,
                route.as_bytes(),
                &mut behind,
            );
        }
        wire::append_messages(numbers::snapshot::RATE_LIMITS, rate_limits, &mut behind);
        wire::append_messages(
            numbers::snapshot::SHARED_FILTERS,
            shared_filters,
            &mut behind,
        );
        wire::append_messages(numbers::snapshot::FILTERS, filters, &mut behind);
        Self {
            ahead: ahead.into(),
            route_tables: encoded(numbers::snapshot::ROUTE_TABLES, route_tables),
            backends: encoded(numbers::snapshot::BACKENDS, backends),
            behind: behind.into(),
            endpoints: encoded(numbers::snapshot::ENDPOINTS, endpoints),
        }
    }

    /// Returns the parts in the order in which they are stored and hashed.
    pub(super) fn all(&self) -> [&[u8]; 5] {
        let Self {
            ahead,
            route_tables,
            backends,
            behind,
            endpoints,
        } = self;
        [ahead, backends, behind, route_tables, endpoints]
    }
}

pub(super) fn encoded<M: prost::Message>(field: u32, messages: &[M]) -> Bytes {
    let mut bytes = Vec::new();
    wire::append_messages(field, messages, &mut bytes);
    bytes.into()
}
