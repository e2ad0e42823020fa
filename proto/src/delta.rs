//! The difference between two versions of a Gateway: changed virtual hosts, and added and removed
//! backends.
//!
//! Never apply only a part of a delta: if one virtual host does not match, change nothing.

use crate::schema::{Backend, EndpointSet, RouteTable, VirtualHost};

/// Differences between two versions of a Gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayDelta {
    /// Changed virtual hosts.
    pub route_tables: RouteTableDelta,
    /// Added and removed backends.
    pub backends: BackendDelta,
    /// Endpoint sets added or removed with the backends.
    pub endpoints: EndpointDelta,
}

/// Changed virtual hosts. The tables, the domains and their order stay the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteTableDelta {
    hosts: Vec<ChangedHost>,
}

/// Two versions of a virtual host.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedHost {
    /// Name of the route table.
    pub table: String,
    /// Old version.
    pub before: VirtualHost,
    /// New version.
    pub after: VirtualHost,
}

/// Added and removed backends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendDelta {
    /// Added backends.
    pub added: Vec<Backend>,
    /// Names of removed backends.
    pub removed: Vec<String>,
}

/// Added and removed endpoint sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointDelta {
    /// Added sets.
    pub added: Vec<EndpointSet>,
    /// Names of removed sets.
    pub removed: Vec<String>,
}

impl GatewayDelta {
    /// Returns true if nothing has changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl BackendDelta {
    /// Returns true if nothing was added or removed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Compares two lists of backends. Returns `None` if a backend has changed, or if a list is not
    /// sorted by name.
    pub fn between(before: Vec<Backend>, after: Vec<Backend>) -> Option<Self> {
        let is_by_name = |list: &[Backend]| list.is_sorted_by(|one, next| one.name < next.name);
        if !is_by_name(&before) || !is_by_name(&after) {
            return None;
        }
        let mut delta = Self::default();
        let mut before = before.into_iter().peekable();
        for backend in after {
            while let Some(gone) = before.next_if(|held| held.name < backend.name) {
                delta.removed.push(gone.name);
            }
            match before.next_if(|held| held.name == backend.name) {
                Some(held) if held == backend => {}
                Some(_) => return None,
                None => delta.added.push(backend),
            }
        }
        delta.removed.extend(before.map(|gone| gone.name));
        Some(delta)
    }
}

impl RouteTableDelta {
    /// Compares route tables. Returns `None` unless both versions have the same tables and domains
    /// in the same order.
    pub fn between(before: Vec<RouteTable>, after: Vec<RouteTable>) -> Option<Self> {
        if before.len() != after.len() {
            return None;
        }
        let mut hosts = Vec::new();
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
                    hosts.push(ChangedHost {
                        table: name.clone(),
                        before,
                        after,
                    });
                }
            }
        }
        Some(Self { hosts })
    }

    /// Returns the changed virtual hosts.
    pub fn hosts(&self) -> &[ChangedHost] {
        &self.hosts
    }
}

impl FromIterator<ChangedHost> for RouteTableDelta {
    fn from_iter<I: IntoIterator<Item = ChangedHost>>(hosts: I) -> Self {
        let hosts = hosts.into_iter().collect();
        Self { hosts }
    }
}
