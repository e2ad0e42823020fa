//! The result of rendering: encoded resources, and the problems with parts that were left out.
//!
//! Never print the content of a resource, because it may include a private key.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

/// An encoded resource.
#[derive(Clone, PartialEq, Eq)]
pub struct Resource {
    /// Also contained in the resource itself.
    pub name: String,
    /// Encoded message without a wrapping `Any`.
    pub bytes: Bytes,
}

impl Resource {
    pub(crate) fn new(name: &str, message: &impl Message) -> Self {
        Self {
            name: name.to_owned(),
            bytes: message.encode_to_vec().into(),
        }
    }
}

// A secret's bytes contain a private key.
impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resource")
            .field("name", &self.name)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}

/// Resources for one Envoy, sorted by name. Different renderings share identical lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// LDS, in one file.
    pub listeners: Arc<[Resource]>,
    /// RDS, in one file per table.
    pub route_tables: Arc<[Resource]>,
    /// CDS, in one file.
    pub clusters: Arc<[Resource]>,
    /// EDS, in one file per endpoint set that has a subscription.
    pub endpoints: Arc<[Resource]>,
    /// SDS, in one file per key pair or trust bundle, with mode 0600.
    pub secrets: Arc<[Resource]>,
    /// ECDS, in one file per kind of filter. Empty without HTTP listeners.
    pub filters: Arc<[Resource]>,
    /// RTDS: a `Runtime` with the connection limits of listeners and clusters.
    pub shares: Bytes,
    /// Number of live hosts, by which Envoy divides fleet limits; 0 if unknown.
    pub fleet_hosts: u32,
    /// Parts that Envoy cannot express, in snapshot order.
    pub problems: Vec<RenderProblem>,
    /// Backends whose endpoints are inlined because the subscription budget is used up.
    pub inline: usize,
    /// Backends whose endpoints are in files.
    pub in_files: Arc<BTreeSet<String>>,
    /// Number of files that Envoy watches.
    pub subscriptions: usize,
}

impl Rendered {
    /// Shares identical lists with another rendering to save memory.
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

/// A part of the snapshot that was left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RenderProblem {
    /// Object name in the snapshot, such as `HTTPRoute/namespace/name/rules/0/matches/1`.
    pub object: String,
    /// Names the field, its value, the expected format and the consequence.
    pub message: String,
}

impl fmt::Display for RenderProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.message)
    }
}

#[derive(Debug, Default)]
pub(crate) struct RenderProblems(Vec<RenderProblem>);

impl RenderProblems {
    pub(crate) fn add(&mut self, object: &str, message: impl Into<String>) {
        self.0.push(RenderProblem {
            object: object.to_owned(),
            message: message.into(),
        });
    }

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

    /// A route in several tables may cause the same problem in each.
    pub(crate) fn distinct(mut self) -> Vec<RenderProblem> {
        let mut seen = BTreeSet::new();
        self.0.retain(|problem| seen.insert(problem.clone()));
        self.0
    }
}

/// Keeps only the first of several resources with the same name.
pub(crate) fn by_name(
    mut resources: Vec<Resource>,
    problems: &mut RenderProblems,
) -> Vec<Resource> {
    resources.sort_by(|a, b| a.name.cmp(&b.name));
    resources.dedup_by(|later, first| {
        let same = later.name == first.name;
        if same {
            let message = "the name is used twice; only the first resource of this name is used";
            problems.add(&later.name, message);
        }
        same
    });
    resources
}

pub(crate) fn find<'r>(by_name: &'r [Resource], name: &str) -> Option<&'r Resource> {
    let place = by_name.binary_search_by(|resource| resource.name.as_str().cmp(name));
    by_name.get(place.ok()?)
}
