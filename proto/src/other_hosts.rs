//! In which virtual hosts two versions of route tables differ, where they differ in nothing else. Pure.

use crate::schema::{RouteTable, VirtualHost};

/// A virtual host that is another, in the place where it was.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherHost {
    /// The name of its table.
    pub table: String,
    /// As it was.
    pub before: VirtualHost,
    /// As it is, with the same domain.
    pub after: VirtualHost,
}

/// The virtual hosts that differ, in the order of the tables. None if the tables or their domains are not the same, in
/// the same places.
pub fn other_hosts(before: Vec<RouteTable>, after: Vec<RouteTable>) -> Option<Vec<OtherHost>> {
    if before.len() != after.len() {
        return None;
    }
    let mut others = Vec::new();
    for (old, new) in before.into_iter().zip(after) {
        let RouteTable {
            name,
            virtual_hosts,
        } = new;
        if old.name != name || old.virtual_hosts.len() != virtual_hosts.len() {
            return None;
        }
        for (before, after) in old.virtual_hosts.into_iter().zip(virtual_hosts) {
            if before.domain != after.domain {
                return None;
            }
            if before != after {
                others.push(OtherHost {
                    table: name.clone(),
                    before,
                    after,
                });
            }
        }
    }
    Some(others)
}
