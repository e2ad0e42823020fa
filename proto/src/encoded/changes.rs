//! Changes to an encoded snapshot, and comparisons of two versions.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::entry::{self, Entry, differences, place};
use super::{EncodedHost, EncodedSnapshot};
use crate::delta::{BackendDelta, ChangedHost, EndpointDelta, GatewayDelta, RouteTableDelta};
use crate::digest::{canonicalize_endpoints, domain_order};
use crate::schema::{Backend, EndpointSet};
use crate::wire;
use crate::wire::numbers::backend::ENDPOINTS;

/// Changed backends and endpoint sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendChanges {
    /// Added backends.
    pub come: Vec<Backend>,
    /// Removed backends.
    pub gone: Vec<Backend>,
    /// Names of added, removed or changed endpoint sets.
    pub sets: BTreeSet<String>,
}

/// True for each part that is the same in two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each part can change independently"
)]
pub struct UnchangedParts {
    /// Route tables.
    pub route_tables: bool,
    /// Backends.
    pub backends: bool,
    /// Endpoint sets.
    pub endpoints: bool,
    /// Listeners, trust bundles, key pairs and settings.
    pub rest: bool,
}

/// Encodes endpoint sets.
pub fn endpoint_entries(sets: &[EndpointSet]) -> Vec<Entry> {
    entry::entries(sets)
}

/// Encodes endpoint sets in canonical form.
pub fn canonical_endpoint_entries(mut sets: Vec<EndpointSet>) -> Vec<Entry> {
    sets.iter_mut().for_each(canonicalize_endpoints);
    entry::entries(&sets)
}

impl EncodedSnapshot {
    /// Compares the parts.
    pub fn unchanged_since(&self, before: &Self) -> UnchangedParts {
        UnchangedParts {
            route_tables: self.route_tables == before.route_tables,
            backends: self.backends == before.backends,
            endpoints: self.endpoints == before.endpoints,
            rest: self.rest == before.rest && self.keys == before.keys,
        }
    }

    /// Returns true if everything except endpoints is the same.
    pub(crate) fn has_config_of(&self, before: &Self) -> bool {
        let UnchangedParts {
            route_tables,
            backends,
            endpoints: _,
            rest,
        } = self.unchanged_since(before);
        route_tables && backends && rest
    }

    /// Replaces all endpoint sets.
    #[must_use]
    pub fn with_endpoints(&self, sets: Vec<Entry>) -> Self {
        let mut changed = self.clone();
        if *changed.endpoints != *sets {
            changed.endpoints = sets.into();
        }
        changed
    }

    /// Replaces endpoint sets by name, and ignores sets that the snapshot lacks.
    #[must_use]
    pub fn with_changed_endpoints(&self, sets: &[Entry]) -> Self {
        let mut changed = self.clone();
        for set in sets {
            let held = place(&changed.endpoints, set.name()).ok();
            if let Some(held) = held.filter(|held| changed.endpoints[*held] != *set) {
                Arc::make_mut(&mut changed.endpoints)[held] = set.clone();
            }
        }
        changed
    }

    /// Applies a delta. Returns `None` if the delta is for another version.
    pub fn with_changes(&self, delta: &GatewayDelta) -> Option<Self> {
        let GatewayDelta {
            route_tables,
            backends: BackendDelta { added, removed },
            endpoints,
        } = delta;
        let mut changed = self.clone();
        changed.change_hosts(route_tables)?;
        change_list(&mut changed.backends, entry::entries(added), removed)?;
        let EndpointDelta { added, removed } = endpoints;
        change_list(&mut changed.endpoints, entry::entries(added), removed)?;
        Some(changed)
    }

    /// Returns `None` unless each changed virtual host equals its previous version.
    fn change_hosts(&mut self, delta: &RouteTableDelta) -> Option<()> {
        for ChangedHost {
            table,
            before,
            after,
        } in delta.hosts()
        {
            let tables = Arc::make_mut(&mut self.route_tables);
            let place = tables.binary_search_by(|held| held.name.as_str().cmp(table));
            let hosts = &mut tables.get_mut(place.ok()?)?.hosts;
            let domain = domain_order(&before.domain);
            let place = hosts.binary_search_by(|held| domain_order(held.domain()).cmp(&domain));
            let held = hosts.get_mut(place.ok()?)?;
            if *held != EncodedHost::new(before) {
                return None;
            }
            *held = EncodedHost::new(after);
        }
        Some(())
    }

    /// Returns the changes since `before`. Returns `None` if a backend has changed, if more than
    /// `most` backends were added or removed, or if a list is not sorted by name.
    pub fn backend_changes(&self, before: &Self, most: usize) -> Option<BackendChanges> {
        let lists = [&self.backends, &before.backends, &self.endpoints];
        if !lists.into_iter().all(|list| entry::is_sorted(list))
            || !entry::is_sorted(&before.endpoints)
        {
            return None;
        }
        let mut changes = BackendChanges::default();
        for pair in differences(&before.backends, &self.backends) {
            match pair {
                (Some(gone), None) => changes.gone.push(gone.decoded()),
                (None, Some(come)) => changes.come.push(come.decoded()),
                _ => return None,
            }
        }
        if changes.come.len() + changes.gone.len() > most {
            return None;
        }
        let sets = differences(&before.endpoints, &self.endpoints).into_iter();
        let names = sets.filter_map(|(old, new)| Some(new.or(old)?.name().to_owned()));
        changes.sets = names.collect();
        Some(changes)
    }

    /// Returns the endpoint sets that differ from `before`, and their backends. Returns `None` if a
    /// set was added or removed.
    pub fn replaced_endpoints(&self, before: &Self) -> Option<(Vec<EndpointSet>, Vec<Backend>)> {
        let (old, new) = (&before.endpoints, &self.endpoints);
        if old.len() != new.len() {
            return None;
        }
        let mut sets = Vec::new();
        for (old, new) in old.iter().zip(&**new).filter(|(old, new)| old != new) {
            if old.name() != new.name() {
                return None;
            }
            sets.push(new);
        }
        let names: HashSet<&str> = sets.iter().map(|set| set.name()).collect();
        let backends = self.backends.iter();
        let backends = backends.filter(|backend| names.contains(set_of(backend)));
        Some((
            sets.into_iter().map(Entry::decoded).collect(),
            backends.map(Entry::decoded).collect(),
        ))
    }

    /// Returns the names of endpoint sets that are in both snapshots and differ.
    pub fn changed_endpoints(&self, before: &Self) -> Vec<&str> {
        let pairs = differences(&before.endpoints, &self.endpoints).into_iter();
        pairs
            .filter_map(|(old, new)| Some(old.and(new)?.name()))
            .collect()
    }

    /// Returns all endpoint sets that backends use, even missing ones.
    pub fn used_endpoints(&self) -> BTreeSet<&str> {
        self.backends.iter().map(set_of).collect()
    }

    /// Decodes the endpoint sets with these names, if they exist.
    pub fn endpoints_of(&self, names: &BTreeSet<&str>) -> Vec<EndpointSet> {
        let sets = self.endpoints.iter();
        let wanted = sets.filter(|set| names.contains(set.name()));
        wanted.map(Entry::decoded).collect()
    }
}

/// Returns `None` if an added entry already exists, or a removed entry does not.
fn change_list(list: &mut Arc<[Entry]>, added: Vec<Entry>, removed: &[String]) -> Option<()> {
    if added.is_empty() && removed.is_empty() {
        return Some(());
    }
    let mut changed = list.to_vec();
    for name in removed {
        changed.remove(place(&changed, name).ok()?);
    }
    for entry in added {
        let free = place(&changed, entry.name()).err()?;
        changed.insert(free, entry);
    }
    *list = changed.into();
    Some(())
}

/// Returns the name of a backend's endpoint set.
fn set_of(backend: &Entry) -> &str {
    let mut rest = backend.bytes();
    // Fields are encoded in numeric order, and all fields before `endpoints` are length-delimited.
    while let Some((field, content, behind)) = wire::first(rest) {
        if field == ENDPOINTS {
            return std::str::from_utf8(content).unwrap_or_default();
        }
        rest = behind;
    }
    ""
}
