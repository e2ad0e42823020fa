//! The outcome of rendering: encoded resources by name, and the parts of the snapshot that were
//! left out.
//!
//! Never print the content of a resource, because it may be a private key.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// One encoded resource.
#[derive(Clone, PartialEq, Eq)]
pub struct Resource {
    /// The resource's own name.
    pub name: String,
    /// The encoded message, without `Any`.
    pub bytes: Bytes,
}

// Written by hand, because the bytes of a secret contain a private key.
impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resource")
            .field("name", &self.name)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}

/// All of Envoy's resources, each list sorted by name. Renderings share identical lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// LDS, one file.
    pub listeners: Arc<[Resource]>,
    /// RDS, one file each.
    pub route_tables: Arc<[Resource]>,
    /// CDS, one file.
    pub clusters: Arc<[Resource]>,
    /// EDS, one file each, but only for clusters whose endpoints have a subscription.
    pub endpoints: Arc<[Resource]>,
    /// SDS, one file each, mode 0600: key pairs and trust bundles.
    pub secrets: Arc<[Resource]>,
    /// ECDS, one file each: rate limits and shared filters, if there are HTTP listeners.
    pub filters: Arc<[Resource]>,
    /// RTDS, one file: the connection limit of each listener and backend, as a `Runtime`.
    pub shares: Bytes,
    /// The parts that Envoy cannot express, in the snapshot's order.
    pub problems: Vec<RenderProblem>,
    /// Number of backends whose endpoints are inlined in the cluster list, because the watch budget
    /// is used up.
    pub inline: usize,
    /// Names of the backends whose endpoints are in files.
    pub in_files: Arc<BTreeSet<String>>,
    /// Number of files that Envoy watches for all these resources.
    pub subscriptions: usize,
}

impl Rendered {
    /// Shares identical lists with another rendering, so that they use memory only once.
    pub fn share_with(&mut self, other: &Self) {
        for (list, same) in [
            (&mut self.listeners, &other.listeners),
            (&mut self.route_tables, &other.route_tables),
            (&mut self.clusters, &other.clusters),
            (&mut self.endpoints, &other.endpoints),
            (&mut self.secrets, &other.secrets),
            (&mut self.filters, &other.filters),
        ] {
            if *list == *same {
                *list = Arc::clone(same);
            }
        }
    }
}

/// A part of the snapshot that was left out, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RenderProblem {
    /// The snapshot's name of the object: `HTTPRoute/namespace/name/rules/0/matches/1`.
    pub object: String,
    /// The field, its value, the expected form, and the consequence.
    pub message: String,
}

impl fmt::Display for RenderProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.message)
    }
}

/// Collector of problems.
#[derive(Debug, Default)]
pub(crate) struct RenderProblems(Vec<RenderProblem>);

impl RenderProblems {
    pub(crate) fn add(&mut self, object: &str, message: impl Into<String>) {
        self.0.push(RenderProblem {
            object: object.to_owned(),
            message: message.into(),
        });
    }

    /// Returns the value. On error, returns `None` and adds a problem with the reason and the
    /// consequence.
    pub(crate) fn value<T>(
        &mut self,
        object: &str,
        result: Result<T, impl fmt::Display>,
        consequence: &str,
    ) -> Option<T> {
        result
            .map_err(|reason| self.add(object, format!("{reason}; {consequence}")))
            .ok()
    }

    pub(crate) fn append(&mut self, mut later: Self) {
        self.0.append(&mut later.0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns each problem once, because a route may be in several tables, and invalid in each of
    /// them.
    pub(crate) fn distinct(mut self) -> Vec<RenderProblem> {
        let mut seen = BTreeSet::new();
        self.0.retain(|problem| seen.insert(problem.clone()));
        self.0
    }
}

/// Sorts resources by name. Keeps only the first of several resources with the same name.
pub(crate) fn by_name(
    mut resources: Vec<Resource>,
    problems: &mut RenderProblems,
) -> Vec<Resource> {
    resources.sort_by(|a, b| a.name.cmp(&b.name));
    resources.dedup_by(|later, first| {
        let same = later.name == first.name;
        if same {
            let message = "the name is used twice; the first one is used, the other is left out";
            problems.add(&later.name, message);
        }
        same
    });
    resources
}

/// Returns the resource with this name from a sorted list.
pub(crate) fn find<'r>(by_name: &'r [Resource], name: &str) -> Option<&'r Resource> {
    let place = by_name.binary_search_by(|resource| resource.name.as_str().cmp(name));
    by_name.get(place.ok()?)
}
