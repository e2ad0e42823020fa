//! Models how Envoy loads files, and generates random configurations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use envoy_types::pb::envoy::config::listener::v3::Listener;
use proptest::prelude::*;
use prost::Message as _;
use sesame_render::layout::file_name;

use super::super::*;
use super::{listener, resource};

/// Generates configurations without dangling references.
pub(super) fn config() -> impl Strategy<Value = Rendered> {
    // Variants change a resource without changing the others.
    let tables = proptest::collection::btree_map(
        0..4_u32,
        proptest::collection::btree_set(0..6_u32, 0..4),
        0..4,
    );
    let listeners = proptest::collection::btree_map(80..84_u32, (0..4_u32, 0..3_u32), 0..4);
    let spare = proptest::collection::btree_set(0..6_u32, 0..3);
    (tables, listeners, spare, 0..3_u32, 0..3_u32).prop_map(
        |(mut tables, listeners, spare, variant, naming)| {
            for (table, _) in listeners.values() {
                tables.entry(*table).or_default();
            }
            let mut clusters = spare;
            clusters.extend(tables.values().flatten());
            let list = |set: &BTreeSet<u32>| {
                let names: Vec<String> = set.iter().map(|c| format!("c{c}")).collect();
                names.join(",")
            };
            Rendered {
                listeners: listeners
                    .iter()
                    // An address can move to a listener with another name.
                    .map(|(port, (table, form))| {
                        let name = format!("{}:{port}", naming * u32::from(*form == 0));
                        listener(&name, *port, &format!("{form}:t{table}"))
                    })
                    .collect(),
                route_tables: tables
                    .iter()
                    .map(|(table, refs)| resource(&format!("t{table}"), &list(refs)))
                    .collect(),
                clusters: clusters
                    .iter()
                    .map(|c| {
                        let eds = if c % 2 == 0 || variant == 0 {
                            "eds"
                        } else {
                            "inline"
                        };
                        let file = file_name(&format!("c{c}"));
                        let content = format!("{eds} {} {file}", variant.min(1));
                        resource(&format!("c{c}"), &content)
                    })
                    .collect(),
                endpoints: clusters
                    .iter()
                    .filter(|c| *c % 2 == 0 || variant == 0)
                    .map(|c| resource(&format!("c{c}"), &format!("endpoints {variant}")))
                    .collect(),
                secrets: [resource(&format!("s{variant}"), "key")].into(),
                ..Rendered::default()
            }
        },
    )
}

/// Files as Envoy has loaded them, which may lag behind the disk.
#[derive(Default)]
pub(super) struct Files {
    pub(super) lists: BTreeMap<XdsKind, Vec<Resource>>,
    pub(super) leaves: BTreeMap<Subscription, Resource>,
}

impl Files {
    pub(super) fn of(rendered: &Rendered) -> Self {
        let mut files = Self::default();
        for kind in [XdsKind::Listeners, XdsKind::Clusters] {
            files.lists.insert(kind, resources(rendered, kind).to_vec());
        }
        for kind in XdsKind::LEAVES {
            for leaf in resources(rendered, kind).iter() {
                files
                    .leaves
                    .insert(Subscription::new(kind, &leaf.name), leaf.clone());
            }
        }
        files
    }

    pub(super) fn write(&mut self, write: &Write) {
        let kind = write.subscription.kind;
        if kind.is_list() {
            self.lists.insert(kind, write.resources.clone());
        } else {
            self.leaves
                .insert(write.subscription.clone(), write.resources[0].clone());
        }
    }

    pub(super) fn rendered(&self) -> Rendered {
        let list = |kind| {
            let mut list = self.lists.get(&kind).cloned().unwrap_or_default();
            list.sort_by(|a, b| a.name.cmp(&b.name));
            Arc::<[Resource]>::from(list)
        };
        let leaves = |kind| {
            let matching = self.leaves.iter().filter(|(s, _)| s.kind == kind);
            matching.map(|(_, leaf)| leaf.clone()).collect()
        };
        Rendered {
            listeners: list(XdsKind::Listeners),
            route_tables: leaves(XdsKind::RouteTable),
            clusters: list(XdsKind::Clusters),
            endpoints: leaves(XdsKind::Endpoints),
            secrets: leaves(XdsKind::Secret),
            filters: leaves(XdsKind::Filter),
            ..Rendered::default()
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let clusters = &self.lists[&XdsKind::Clusters];
        for cluster in clusters {
            let eds = Subscription::new(XdsKind::Endpoints, &cluster.name);
            if cluster.bytes.starts_with(b"eds") && !self.leaves.contains_key(&eds) {
                return Err(format!("cluster {} has no {eds}", cluster.name));
            }
        }
        let mut bound = BTreeSet::new();
        for listener in &self.lists[&XdsKind::Listeners] {
            let message = Listener::decode(listener.bytes.clone()).unwrap();
            if !bound.insert(format!("{:?}", message.address)) {
                return Err(format!("{} binds an address twice", listener.name));
            }
            let table = message.stat_prefix.split(':').nth(1).unwrap();
            let rds = Subscription::new(XdsKind::RouteTable, table);
            let Some(table) = self.leaves.get(&rds) else {
                return Err(format!("listener {} has no {rds}", listener.name));
            };
            let refs = String::from_utf8(table.bytes.to_vec()).unwrap();
            for name in refs.split(',').filter(|name| !name.is_empty()) {
                if !clusters.iter().any(|c| c.name == name) {
                    return Err(format!("{rds} refers to cluster {name}, which was removed"));
                }
            }
        }
        Ok(())
    }
}
