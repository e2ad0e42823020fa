//! Decides when to remove unused clusters: immediately, or later to avoid delaying the next change.
//!
//! Never removes a cluster that a route table on disk may use, or a file that a cluster on disk
//! references. Never postpones the removal of a cluster whose connections use keys or trust
//! bundles.

use std::collections::BTreeSet;
use std::sync::Arc;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use itertools::EitherOrBoth;
use prost::Message as _;
use sesame_render::layout::file_name;
use sesame_render::{Rendered, Resource};

use super::on_disk::{OnDisk, resources, resources_mut};
use super::plan::{Write, merge};
use sesame_render::xds::{Subscription, XdsKind};

/// Maximum number of unused clusters to keep, low because each may cost Envoy an inotify instance.
const MAX_UNUSED: usize = 16;

/// When to remove resources that have become unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Removal {
    /// Remove them in the last steps of the transaction that makes them unused.
    #[default]
    AtOnce,
    /// Remove them when a later transaction writes the cluster list anyway. Same as `AtOnce` if too
    /// many clusters are unused, or if one of them uses TLS.
    Later,
    /// Keep them while connections to removed listeners are draining, because these connections
    /// still use the old route tables. Same exceptions as for `Later`.
    Hold,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOver {
    clusters: Vec<Resource>,
    leaves: Vec<(XdsKind, Resource)>,
}

#[derive(Default)]
pub(super) struct ClusterWrites {
    pub(super) union: Option<Vec<Resource>>,
    pub(super) last: Option<Vec<Resource>>,
    pub(super) left_over: LeftOver,
}

/// `wanted` must be sorted by name.
pub(super) fn clusters(
    old: &OnDisk,
    wanted: &[&Resource],
    again: bool,
    removal: Removal,
) -> ClusterWrites {
    let mut is_written = again;
    let (mut unused_before, mut unused_now) = (Vec::new(), Vec::new());
    for pair in merge(old.resources(XdsKind::Clusters), wanted.iter().copied()) {
        match pair {
            EitherOrBoth::Right(_) => is_written = true,
            EitherOrBoth::Both(before, after) => is_written |= before.bytes != after.bytes,
            EitherOrBoth::Left(gone) if old.unused.contains(&gone.name) => unused_before.push(gone),
            EitherOrBoth::Left(gone) => unused_now.push(gone),
        }
    }
    let with = |unused: &[&Resource]| together(unused, wanted);
    let is_little = unused_before.len() + unused_now.len() <= MAX_UNUSED;
    let is_encrypted = |unused: &&Resource| {
        let cluster = Cluster::decode(&*unused.bytes);
        cluster.is_ok_and(|cluster| is_encrypted(&cluster))
    };
    let may_stay = is_little && !unused_now.iter().any(is_encrypted);
    if removal != Removal::AtOnce && may_stay {
        let unused = if removal == Removal::Later && is_written {
            // Older leftovers have been unused since an earlier transaction, so remove them now.
            unused_now
        } else {
            together_all(&unused_before, &unused_now)
        };
        return ClusterWrites {
            union: is_written.then(|| with(&unused)),
            last: None,
            left_over: LeftOver {
                clusters: unused.into_iter().cloned().collect(),
                leaves: Vec::new(),
            },
        };
    }
    let in_two = !unused_now.is_empty();
    ClusterWrites {
        union: (is_written || !in_two && !unused_before.is_empty()).then(|| with(&unused_now)),
        last: in_two.then(|| with(&[])),
        left_over: LeftOver::default(),
    }
}

/// Returns true if the cluster's connections use a key or trust bundle. A later cluster of the same
/// name must not reuse them.
pub(super) fn is_encrypted(cluster: &Cluster) -> bool {
    cluster.transport_socket.is_some() || !cluster.transport_socket_matches.is_empty()
}

fn together(unused: &[&Resource], wanted: &[&Resource]) -> Vec<Resource> {
    let all = together_all(unused, wanted);
    all.into_iter().cloned().collect()
}

fn together_all<'r>(some: &[&'r Resource], others: &[&'r Resource]) -> Vec<&'r Resource> {
    let mut all: Vec<&Resource> = some.iter().chain(others).copied().collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

impl LeftOver {
    /// Keeps the file and returns true if a leftover cluster refers to it.
    pub(super) fn keeps(&mut self, kind: XdsKind, leaf: &Resource) -> bool {
        let may_name = matches!(kind, XdsKind::Endpoints | XdsKind::Secret);
        if !may_name || self.clusters.is_empty() {
            return false;
        }
        let file = file_name(&leaf.name);
        let names = |cluster: &Resource| contains(&cluster.bytes, file.as_bytes());
        let kept = self.clusters.iter().any(names);
        if kept {
            self.leaves.push((kind, leaf.clone()));
        }
        kept
    }

    pub(super) fn beside(&self, new: &Rendered) -> OnDisk {
        let mut content = new.clone();
        let mut add = |kind: XdsKind, more: Vec<&Resource>| {
            if !more.is_empty() {
                let wanted: Vec<&Resource> = resources(new, kind).iter().collect();
                let all = Arc::from(together(&more, &wanted));
                *resources_mut(&mut content, kind) = all;
            }
        };
        add(XdsKind::Clusters, self.clusters.iter().collect());
        for kind in [XdsKind::Endpoints, XdsKind::Secret] {
            let leaves = self.leaves.iter();
            let matching = leaves.filter(|(leaf_kind, _)| *leaf_kind == kind);
            add(kind, matching.map(|(_, leaf)| leaf).collect());
        }
        OnDisk {
            content,
            has_listeners: true,
            has_clusters: true,
            unconfirmed: BTreeSet::new(),
            unused: self.clusters.iter().map(|it| it.name.clone()).collect(),
        }
    }
}

pub(super) fn write(resources: Option<Vec<Resource>>, new: bool) -> Vec<Write> {
    let write = |resources| Write {
        subscription: Subscription::new(XdsKind::Clusters, ""),
        resources,
        new,
    };
    resources.map(write).into_iter().collect()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
