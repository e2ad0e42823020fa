//! The difference between two versions of a Gateway that differ only in the contents of virtual
//! hosts, and in added and removed backends.
//!
//! A delta comes from incremental resolution, or from comparing two versions of a shard. It can be
//! applied to shards and to encoded snapshots, which then need not be rebuilt. Never apply only a
//! part of a delta: if one virtual host does not match, change nothing.

use crate::digest::domain_order;
use crate::schema::{Backend, EndpointSet, RouteTable, VirtualHost};

/// All differences between two versions of a Gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayDelta {
    /// Changed virtual hosts.
    pub route_tables: RouteTableDelta,
    /// Added and removed backends.
    pub backends: BackendDelta,
    /// Endpoint sets added or removed along with the backends.
    pub endpoints: EndpointDelta,
}

/// Changed virtual hosts. No virtual host is added, removed or moved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteTableDelta {
    hosts: Vec<ChangedHost>,
}

/// The old and the new version of a virtual host.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedHost {
    /// Name of the route table that contains the virtual host.
    pub table: String,
    /// The version to be replaced.
    pub before: VirtualHost,
    /// The new version.
    pub after: VirtualHost,
}

/// Added and removed backends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendDelta {
    /// Added backends.
    pub added: Vec<Backend>,
    /// Names of the removed backends.
    pub removed: Vec<String>,
}

/// Added and removed endpoint sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointDelta {
    /// Added sets.
    pub added: Vec<EndpointSet>,
    /// Names of the removed sets.
    pub removed: Vec<String>,
}

impl GatewayDelta {
    /// Returns true if nothing has changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl BackendDelta {
    /// Returns true if no backend or endpoint set was added or removed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Compares two lists of backends. Returns `None` if a backend in both lists has changed, or if
    /// a list is not sorted by name.
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

    /// Adds the changes of another delta.
    pub fn extend(&mut self, more: Self) {
        let Self { added, removed } = more;
        self.added.extend(added);
        self.removed.extend(removed);
    }

    /// Applies the delta to a list that is sorted by name. Returns `None` if an added backend
    /// already exists, or if a removed backend does not. In that case, discard the list.
    #[must_use]
    pub fn apply(&self, backends: &mut Vec<Backend>) -> Option<()> {
        let place = |list: &[Backend], name: &str| {
            list.binary_search_by(|held| held.name.as_str().cmp(name))
        };
        for name in &self.removed {
            backends.remove(place(backends, name).ok()?);
        }
        for backend in &self.added {
            let free = place(backends, &backend.name).err()?;
            backends.insert(free, backend.clone());
        }
        Some(())
    }
}

impl EndpointDelta {
    /// Returns true if nothing was added or removed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl RouteTableDelta {
    /// Compares two versions of route tables. Returns `None` if the tables or their domains differ,
    /// in content or in order.
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

    /// Returns true if nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Returns the changed virtual hosts.
    pub fn hosts(&self) -> &[ChangedHost] {
        &self.hosts
    }

    /// Adds the changes of another delta. No virtual host may be in both deltas.
    pub fn extend(&mut self, more: Self) {
        self.hosts.extend(more.hosts);
    }

    /// Replaces the changed virtual hosts in canonical tables. Returns `None` if a virtual host
    /// does not equal its previous version. In that case, discard the tables.
    #[must_use]
    pub fn apply(&self, tables: &mut [RouteTable]) -> Option<()> {
        for ChangedHost {
            table,
            before,
            after,
        } in &self.hosts
        {
            let place = tables.binary_search_by(|held| held.name.as_str().cmp(table));
            let hosts = &mut tables.get_mut(place.ok()?)?.virtual_hosts;
            let domain = domain_order(&before.domain);
            let place = hosts.binary_search_by(|held| domain_order(&held.domain).cmp(&domain));
            let held = hosts.get_mut(place.ok()?)?;
            if held != before {
                return None;
            }
            held.clone_from(after);
        }
        Some(())
    }
}

impl FromIterator<ChangedHost> for RouteTableDelta {
    fn from_iter<I: IntoIterator<Item = ChangedHost>>(hosts: I) -> Self {
        let hosts = hosts.into_iter().collect();
        Self { hosts }
    }
}
