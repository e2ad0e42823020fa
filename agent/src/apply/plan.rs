//! Plans the order in which files are written, so that no request sees a partial change.
//!
//! Pure: the input is the files on disk and the desired resources, and the output is ordered steps.
//! Envoy's subscriptions are independent of each other, so only the order of the steps protects
//! requests:
//!
//! keys, endpoints, filters (old ∪ new), new route tables → clusters (old ∪ new) → listeners
//! (old ∪ new) → changed route tables → filters (new) → listeners (new) → clusters (new) → delete
//! orphans
//!
//! The removal of clusters and orphans can be postponed ([`Removal`]), so that the next change need
//! not wait.
//!
//! Unchanged files are not written. A route change writes one RDS file, and an endpoint change
//! writes one EDS file. A file is written twice only if something is removed from it.

use std::collections::BTreeSet;
use std::sync::Arc;

use itertools::{EitherOrBoth, Itertools as _};

use super::filters;
use super::on_disk::{OnDisk, resources};
use super::removal::{self, ClusterWrites, LeftOver, Removal};
use crate::xds::response;
use crate::xds::{Subscription, XdsKind};
use sesame_render::{Rendered, Resource};

/// Phase of a plan. The variants are listed in the order in which their steps run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Keys, endpoints, filters (old ∪ new), and new route tables.
    Leaves,
    /// Clusters, old ∪ new.
    ClustersUnion,
    /// Listeners, old ∪ new.
    ListenersUnion,
    /// Changed route tables.
    RouteTables,
    /// Filters without removed entries.
    Filters,
    /// The list of listeners, without removed listeners.
    Listeners,
    /// The list of clusters, without removed clusters.
    Clusters,
    /// Files that are no longer referenced.
    Orphans,
}

impl Phase {
    /// All phases, in order.
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
    /// Subscription through which Envoy reads the file.
    pub subscription: Subscription,
    /// Resources in the file, sorted by name. Only LDS and CDS files can contain several.
    pub resources: Vec<Resource>,
    /// True if the file is new. Envoy may not be subscribed to it yet.
    pub new: bool,
}

/// Writes whose relative order does not matter. Envoy must accept all of them before the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    /// Phase that the step belongs to.
    pub phase: Phase,
    /// Files to write.
    pub writes: Vec<Write>,
    /// Files to delete.
    pub removals: Vec<Subscription>,
}

/// Ordered steps from one state to another. Empty if nothing changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Steps, sorted by phase.
    pub steps: Vec<PlanStep>,
    /// Unused clusters that remain on disk after the last step.
    left_over: LeftOver,
}

impl Plan {
    /// Returns true if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns the content on disk once Envoy has accepted `new`, the target of this plan.
    pub(crate) fn outcome(&self, new: &Rendered) -> OnDisk {
        self.left_over.beside(new)
    }

    /// Returns the number of additional files that Envoy will watch.
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
    /// Two resources share a name, so Envoy would reject the file.
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

/// Writes and removals for all files except LDS and CDS, grouped by phase.
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
        // Avoid comparing thousands of unchanged resources.
        if Arc::ptr_eq(wanted, resources(&old.content, kind)) && old.unconfirmed.is_empty() {
            continue;
        }
        for pair in merge(old.of(kind), sorted(kind, wanted)?) {
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

/// Returns the resources sorted by name.
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

/// Writes to the LDS file: at most one before and one after the route tables change.
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

/// Returns the addresses to which the desired listeners bind.
fn addresses(wanted: &[&Resource]) -> BTreeSet<bytes::Bytes> {
    wanted
        .iter()
        .flat_map(|listener| response::listener_addresses(&listener.bytes))
        .collect()
}

/// Returns true if a removed listener's address is also bound by a desired listener with another
/// name. Envoy rejects a file that contains both ("duplicate address"), but accepts a file in which
/// one replaces the other.
fn clashes(gone: &Resource, taken: &BTreeSet<bytes::Bytes>) -> bool {
    response::listener_addresses(&gone.bytes)
        .iter()
        .any(|address| taken.contains(address))
}

/// Merges two lists that are sorted by name.
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
