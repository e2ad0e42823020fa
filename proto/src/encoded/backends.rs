//! Adds and removes backends and endpoint sets in an encoded snapshot.
//!
//! Functions return `None` if the encoding is unexpected. The caller then rebuilds the snapshot.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prost::Message;

use super::differences::{by_name, differences};
use super::{EncodedSnapshot, endpoints};
use crate::delta::{BackendDelta, EndpointDelta};
use crate::schema::Backend;
use crate::wire::numbers::{backend, snapshot};
use crate::wire::{append, append_message, appended_len, first};

const PLACE: (u32, u32) = (snapshot::BACKENDS, backend::NAME);

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

impl EncodedSnapshot {
    /// Returns the changes since `before`. Returns `None` if a backend has changed, if more than
    /// `most` backends were added or removed, or if the encoding is not as expected.
    pub fn backend_changes(&self, before: &Self, most: usize) -> Option<BackendChanges> {
        let (now, old) = (&self.parts, &before.parts);
        let backends = differences(&old.backends, &now.backends, PLACE)?;
        if !backends.replaced.is_empty() || backends.come.len() + backends.gone.len() > most {
            return None;
        }
        let sets = differences(&old.endpoints, &now.endpoints, endpoints::PLACE)?;
        let sets = [sets.come, sets.gone, sets.replaced];
        let name = |set| String::from_utf8(first(set)?.1.to_vec()).ok();
        let backend = |backend: &[u8]| Backend::decode(backend).ok();
        Some(BackendChanges {
            come: backends
                .come
                .into_iter()
                .map(backend)
                .collect::<Option<_>>()?,
            gone: backends
                .gone
                .into_iter()
                .map(backend)
                .collect::<Option<_>>()?,
            sets: sets
                .into_iter()
                .flatten()
                .map(name)
                .collect::<Option<_>>()?,
        })
    }

    /// Adds and removes backends. Returns `None` if an added backend already exists, or a removed
    /// backend does not.
    pub fn with_changed_backends(&self, delta: &BackendDelta) -> Option<Self> {
        let BackendDelta { added, removed } = delta;
        let mut changed = self.clone();
        if !delta.is_empty() {
            let added_by_name = added.iter().map(|it| (it.name.as_str(), it)).collect();
            changed.parts.backends =
                patch(&self.parts.backends, PLACE, added_by_name, removed)?.into();
            changed.counts.backends =
                (self.counts.backends + added.len()).checked_sub(removed.len())?;
        }
        Some(changed)
    }

    /// Returns true if this text occurs in the encoded route tables.
    pub fn is_in_route_tables(&self, text: &str) -> bool {
        let text = text.as_bytes();
        let tables = &self.parts.route_tables;
        text.is_empty() || memchr::memmem::find(tables, text).is_some()
    }

    /// Returns true if this text occurs outside route tables, backends and endpoint sets.
    pub fn is_in_rest(&self, text: &str) -> bool {
        let text = text.as_bytes();
        let is_in = |part: &Bytes| memchr::memmem::find(part, text).is_some();
        text.is_empty() || is_in(&self.parts.ahead) || is_in(&self.parts.behind)
    }
}

pub(super) fn patched_endpoints(encoded: &[u8], delta: &EndpointDelta) -> Option<Bytes> {
    let EndpointDelta { added, removed } = delta;
    let added_by_name = added.iter().map(|it| (it.name.as_str(), it)).collect();
    patch(encoded, endpoints::PLACE, added_by_name, removed).map(Bytes::from)
}

/// The list must be sorted by name.
fn patch<M: Message>(
    encoded: &[u8],
    place: (u32, u32),
    mut added: BTreeMap<&str, &M>,
    removed: &[String],
) -> Option<Vec<u8>> {
    let mut removed: BTreeSet<&[u8]> = removed.iter().map(String::as_bytes).collect();
    let (field, _) = place;
    let lengths = added
        .values()
        .map(|it| appended_len(field, it.encoded_len()));
    let grown: usize = lengths.sum();
    let mut bytes = Vec::with_capacity(encoded.len() + grown);
    let add = |message: &M, bytes: &mut Vec<u8>| append_message(field, message, bytes);
    for (name, message) in by_name(encoded, place)? {
        while let Some(next) = added.first_entry() {
            match next.key().as_bytes().cmp(name) {
                std::cmp::Ordering::Less => add(next.remove(), &mut bytes),
                std::cmp::Ordering::Equal => return None,
                std::cmp::Ordering::Greater => break,
            }
        }
        if !removed.remove(name) {
            append(field, message, &mut bytes);
        }
    }
    for message in added.into_values() {
        add(message, &mut bytes);
    }
    removed.is_empty().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::GatewayDelta;
    use crate::schema::{AppProtocol, Backend, Endpoint, EndpointSet, Snapshot};

    fn backend(name: &str) -> Backend {
        Backend {
            name: name.to_owned(),
            endpoints: format!("set of {name}"),
            protocol: AppProtocol::Http2.into(),
            ..Backend::default()
        }
    }

    fn set(name: &str) -> EndpointSet {
        EndpointSet {
            name: format!("set of {name}"),
            endpoints: vec![Endpoint {
                address: "192.0.2.1".to_owned(),
                port: 80,
            }],
        }
    }

    fn snapshot(names: &[&str]) -> EncodedSnapshot {
        let snapshot = Snapshot {
            gateway: "Gateway/ns/gw".to_owned(),
            backends: names.iter().map(|name| backend(name)).collect(),
            endpoints: names.iter().map(|name| set(name)).collect(),
            ..Snapshot::default()
        };
        EncodedSnapshot::new(&snapshot, Vec::new())
    }

    fn delta(added: &[&str], removed: &[&str]) -> GatewayDelta {
        let set_of = |name: &&str| format!("set of {name}");
        GatewayDelta {
            backends: BackendDelta {
                added: added.iter().map(|name| backend(name)).collect(),
                removed: removed.iter().map(|name| (*name).to_owned()).collect(),
            },
            endpoints: EndpointDelta {
                added: added.iter().map(|name| set(name)).collect(),
                removed: removed.iter().map(set_of).collect(),
            },
            ..GatewayDelta::default()
        }
    }

    #[test]
    fn backend_changes_encode_like_full_snapshot() {
        let all: [&[&str]; 5] = [&[], &["b"], &["a", "b"], &["b", "d"], &["a", "b", "c", "d"]];
        for before in all {
            for after in all {
                let not_in = |one: &[&'static str], other: &[&str]| {
                    let mut names = one.to_vec();
                    names.retain(|name| !other.contains(name));
                    names
                };
                let delta = delta(&not_in(after, before), &not_in(before, after));
                let patched = snapshot(before).with_changes(&delta);
                assert_eq!(patched, Some(snapshot(after)), "{before:?} {after:?}");
            }
        }
        let there = snapshot(&["a", "b"]);
        assert_eq!(there.with_changes(&delta(&["b"], &[])), None);
        assert_eq!(there.with_changes(&delta(&[], &["c"])), None);
    }
}
