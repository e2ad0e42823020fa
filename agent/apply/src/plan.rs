//! Plans the order in which files are written. Envoy reads each file independently, so only this
//! order protects requests from a mixture of old and new files:
//!
//! keys, endpoints, filters (old ∪ new), new route tables → clusters (old ∪ new) → listeners (old ∪
//! new) → changed route tables → filters (new) → listeners (new) → clusters (new) → delete orphans
//!
//! The removal of clusters and orphaned files can be postponed ([`Removal`]). Unchanged files are
//! not written.

use std::collections::BTreeSet;
use std::sync::Arc;

use itertools::{EitherOrBoth, Itertools as _};

use super::filters;
use super::on_disk::{OnDisk, resources};
use super::removal::{self, ClusterWrites, LeftOver, Removal};
use sesame_render::xds::response;
use sesame_render::xds::{Subscription, XdsKind};
use sesame_render::{Rendered, Resource};

/// Phase of a plan. Steps run in the order of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Keys, endpoints, new route tables, and the union of old and new filters.
    Leaves,
    /// The union of the old and new clusters.
    ClustersUnion,
    /// The union of the old and new listeners.
    ListenersUnion,
    /// Changed route tables.
    RouteTables,
    /// Filter files without removed entries.
    Filters,
    /// The LDS file without removed listeners.
    Listeners,
    /// The CDS file without removed clusters.
    Clusters,
    /// Removal of unreferenced files.
    Orphans,
}

impl Phase {
    /// All phases, in the order in which they run.
    pub const ALL: [Self; 8] = [
        Self::Leaves,
        Self::ClustersUnion,
        Self::ListenersUnion,
        Self::RouteTables,
        Self::Filters,
        Self::Listeners,
        Self::Clusters,
        Self::Orphans,
    ];

    /// Returns the phase's name as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leaves => "leaves",
            Self::ClustersUnion => "clusters_union",
            Self::ListenersUnion => "listeners_union",
            Self::RouteTables => "route_tables",
            Self::Filters => "filters",
            Self::Listeners => "listeners",
            Self::Clusters => "clusters",
            Self::Orphans => "orphans",
        }
    }
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Envoy's subscription for the file.
    pub subscription: Subscription,
    /// Resources, sorted by name. Only LDS and CDS files can contain more than one.
    pub resources: Vec<Resource>,
    /// True if the file did not exist before. Envoy may not be subscribed to it yet.
    pub new: bool,
}

/// One step of a plan. Envoy must accept all of its writes, in any order, before the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    /// Phase to which the step belongs.
    pub phase: Phase,
    /// Files to write.
    pub writes: Vec<Write>,
    /// Files to delete.
    pub removals: Vec<Subscription>,
}

/// Ordered steps from one state to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Steps, sorted by phase.
    pub steps: Vec<PlanStep>,
    left_over: LeftOver,
}

impl Plan {
    /// Returns true if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(crate) fn outcome(&self, new: &Rendered) -> OnDisk {
        self.left_over.beside(new)
    }

    pub(crate) fn new_leaves(&self) -> usize {
        let writes = self.steps.iter().flat_map(|step| &step.writes);
        writes
            .filter(|write| write.new && !write.subscription.kind.is_list())
            .count()
    }
}

/// Error in the desired resources.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Two resources of the same kind have the same name, so Envoy would reject them.
    #[error("{0} is rendered twice; names must be unique within each kind of resource")]
    Duplicate(String),
}

/// Plans the steps that lead from `old` to `new`.
pub fn plan(old: &OnDisk, new: &Rendered, removal: Removal) -> Result<Plan, PlanError> {
    let ClusterWrites {
        union,
        last,
        mut left_over,
    } = clusters(old, new, removal)?;
    let leaves = leaves(old, new, &mut left_over)?;
    let listeners = listeners(old, new)?;
    let is_new = !old.has_clusters;
    let steps = [
        (Phase::Leaves, leaves.first, Vec::new()),
        (
            Phase::ClustersUnion,
            removal::write(union, is_new),
            Vec::new(),
        ),
        (Phase::ListenersUnion, listeners.union, Vec::new()),
        (Phase::RouteTables, leaves.route_tables, Vec::new()),
        (Phase::Filters, leaves.filters, Vec::new()),
        (Phase::Listeners, listeners.last, Vec::new()),
        (Phase::Clusters, removal::write(last, is_new), Vec::new()),
        (Phase::Orphans, Vec::new(), leaves.orphans),
    ];
    Ok(Plan {
        steps: steps
            .into_iter()
            .filter(|(_, writes, removals)| !writes.is_empty() || !removals.is_empty())
            .map(|(phase, writes, removals)| PlanStep {
                phase,
                writes,
                removals,
            })
            .collect(),
        left_over,
    })
}

#[derive(Default)]
struct LeafWrites {
    first: Vec<Write>,
    route_tables: Vec<Write>,
    filters: Vec<Write>,
    orphans: Vec<Subscription>,
}

fn leaves(old: &OnDisk, new: &Rendered, left_over: &mut LeftOver) -> Result<LeafWrites, PlanError> {
    let mut writes = LeafWrites::default();
    for kind in XdsKind::LEAVES {
        let wanted = resources(new, kind);
        // Skip the comparison of thousands of unchanged resources.
        if Arc::ptr_eq(wanted, resources(&old.content, kind)) && old.unconfirmed.is_empty() {
            continue;
        }
        for pair in merge(old.resources(kind), sorted(kind, wanted)?) {
            let write = |resource: &Resource, new| Write {
                subscription: Subscription::new(kind, &resource.name),
                resources: vec![resource.clone()],
                new,
            };
            match pair {
                EitherOrBoth::Right(resource) => writes.first.push(write(resource, true)),
                EitherOrBoth::Left(resource) if left_over.keeps(kind, resource) => {}
                EitherOrBoth::Left(resource) => {
                    writes.orphans.push(Subscription::new(kind, &resource.name));
                }
                EitherOrBoth::Both(before, after) => {
                    if before.bytes == after.bytes && !old.is_unconfirmed(kind, &after.name) {
                        continue;
                    }
                    if kind == XdsKind::RouteTable {
                        writes.route_tables.push(write(after, false));
                    } else if kind == XdsKind::Filter
                        && let Some(union) = filters::union(before, after)
                    {
                        writes.first.push(write(&union, false));
                        writes.filters.push(write(after, false));
                    } else {
                        writes.first.push(write(after, false));
                    }
                }
            }
        }
    }
    Ok(writes)
}

fn clusters(old: &OnDisk, new: &Rendered, removal: Removal) -> Result<ClusterWrites, PlanError> {
    let kind = XdsKind::Clusters;
    let (before, wanted) = (resources(&old.content, kind), resources(new, kind));
    let again = !old.has_clusters || old.is_unconfirmed(kind, "");
    if !again && Arc::ptr_eq(before, wanted) {
        return Ok(ClusterWrites::default());
    }
    let wanted = sorted(kind, wanted)?;
    Ok(removal::clusters(old, &wanted, again, removal))
}

fn sorted(kind: XdsKind, resources: &[Resource]) -> Result<Vec<&Resource>, PlanError> {
    let mut all: Vec<&Resource> = resources.iter().collect();
    if !all.is_sorted_by(|a, b| a.name <= b.name) {
        all.sort_by(|a, b| a.name.cmp(&b.name));
    }
    for pair in all.windows(2) {
        if let [a, b] = pair
            && a.name == b.name
        {
            return Err(PlanError::Duplicate(format!(
                "{} {}",
                kind.directory(),
                a.name
            )));
        }
    }
    Ok(all)
}

#[derive(Default)]
struct ListenerWrites {
    union: Vec<Write>,
    last: Vec<Write>,
}

fn listeners(old: &OnDisk, new: &Rendered) -> Result<ListenerWrites, PlanError> {
    let kind = XdsKind::Listeners;
    let write = |resources: Vec<Resource>| {
        vec![Write {
            subscription: Subscription::new(kind, ""),
            resources,
            new: !old.has_listeners,
        }]
    };
    let mut writes = ListenerWrites::default();
    let (before, wanted) = (resources(&old.content, kind), resources(new, kind));
    let again = !old.has_listeners || old.is_unconfirmed(kind, "");
    if !again && Arc::ptr_eq(before, wanted) {
        return Ok(writes);
    }
    let wanted = sorted(kind, wanted)?;
    if !again && before.iter().eq(wanted.iter().copied()) {
        return Ok(writes);
    }
    let taken = addresses(&wanted);
    let union: Vec<Resource> = merge(before, wanted.iter().copied())
        .filter_map(|pair| match pair {
            EitherOrBoth::Right(after) | EitherOrBoth::Both(_, after) => Some(after),
            EitherOrBoth::Left(gone) => (!clashes(gone, &taken)).then_some(gone),
        })
        .cloned()
        .collect();
    let keeps_all = union.len() == wanted.len();
    if again || before[..] != union[..] {
        writes.union = write(union);
    }
    if !keeps_all {
        writes.last = write(wanted.into_iter().cloned().collect());
    }
    Ok(writes)
}

fn addresses(wanted: &[&Resource]) -> BTreeSet<bytes::Bytes> {
    wanted
        .iter()
        .flat_map(|listener| response::listener_addresses(&listener.bytes))
        .collect()
}

/// Envoy rejects a file with both listeners ("duplicate address"), but accepts a file in which the
/// new listener replaces the old one.
fn clashes(gone: &Resource, taken: &BTreeSet<bytes::Bytes>) -> bool {
    response::listener_addresses(&gone.bytes)
        .iter()
        .any(|address| taken.contains(address))
}

/// Both lists must be sorted by name.
pub(super) fn merge<'a>(
    old: &'a [Resource],
    new: impl IntoIterator<Item = &'a Resource>,
) -> impl Iterator<Item = EitherOrBoth<&'a Resource>> {
    let by_name = |before: &&Resource, after: &&Resource| before.name.cmp(&after.name);
    old.iter().merge_join_by(new, by_name)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
