//! Divides an encoded snapshot into pieces for storage, and joins them again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use prost::Message as _;

use super::entry::Entry;
use super::{EncodedHost, EncodedSnapshot, EncodedTable, Rest};
use crate::digest::{canonicalize, domain_order};
use crate::schema::Snapshot;

/// Entries in the bucket of their name.
type Buckets<T> = BTreeMap<usize, Vec<T>>;

impl EncodedSnapshot {
    /// Returns the piece without route tables and backends, then the route tables and backends in
    /// buckets.
    pub(crate) fn divide(
        &self,
        mut bucket: impl FnMut(&str) -> usize,
    ) -> Vec<(Option<usize>, Self)> {
        let mut tables: Buckets<EncodedTable> = BTreeMap::new();
        let mut backends: Buckets<Entry> = BTreeMap::new();
        for table in &*self.route_tables {
            for host in &table.hosts {
                let tables = tables.entry(bucket(host.domain())).or_default();
                match tables.last_mut() {
                    Some(last) if last.name == table.name => last.hosts.push(host.clone()),
                    _ => tables.push(EncodedTable {
                        name: table.name.clone(),
                        hosts: vec![host.clone()],
                    }),
                }
            }
        }
        for backend in &*self.backends {
            let backends = backends.entry(bucket(backend.name())).or_default();
            backends.push(backend.clone());
        }
        let head = Self {
            rest: Arc::clone(&self.rest),
            ..Self::default()
        };
        let mut pieces: BTreeMap<Option<usize>, Self> = BTreeMap::from([(None, head)]);
        for (bucket, tables) in tables {
            pieces.entry(Some(bucket)).or_default().route_tables = tables.into();
        }
        for (bucket, entries) in backends {
            pieces.entry(Some(bucket)).or_default().backends = entries.into();
        }
        pieces.into_iter().collect()
    }

    /// Returns the endpoint sets in buckets.
    pub(crate) fn divide_endpoints(&self, mut bucket: impl FnMut(&str) -> usize) -> Buckets<Entry> {
        let mut buckets = Buckets::new();
        for set in &*self.endpoints {
            let sets: &mut Vec<Entry> = buckets.entry(bucket(set.name())).or_default();
            sets.push(set.clone());
        }
        buckets
    }

    /// Joins pieces to a canonical snapshot without endpoints: the revision does not cover them, so
    /// they are not verified.
    pub(crate) fn join<'p>(pieces: impl IntoIterator<Item = &'p Self>) -> Self {
        let mut rest = Vec::new();
        let mut tables: BTreeMap<&str, Vec<HostParts<'p>>> = BTreeMap::new();
        let mut backends: Vec<&Entry> = Vec::new();
        for piece in pieces {
            rest.extend(piece.rest().encode_to_vec());
            for table in &*piece.route_tables {
                let hosts = tables.entry(&table.name).or_default();
                let mut whole = table.hosts.as_slice();
                if let (Some(last), [first, others @ ..]) = (hosts.last_mut(), whole)
                    && last.domain() == first.domain()
                {
                    // This piece continues a virtual host that was too large for one piece.
                    last.more.push(&first.entry);
                    whole = others;
                }
                hosts.extend(whole.iter().map(HostParts::new));
            }
            backends.extend(&*piece.backends);
        }
        #[expect(clippy::expect_used, reason = "proven")]
        let mut rest = Snapshot::decode(&*rest).expect("concatenated messages are a message");
        canonicalize(&mut rest);
        // Reading a name takes time, so read each only once.
        backends.sort_by_cached_key(|backend| backend.name());
        let tables = tables.into_iter().map(|(name, mut hosts)| {
            hosts.sort_by_cached_key(|host| domain_order(host.domain()));
            EncodedTable {
                name: name.to_owned(),
                hosts: hosts.iter().map(HostParts::joined).collect(),
            }
        });
        Self {
            rest: Arc::new(Rest::new(rest)),
            route_tables: tables.collect(),
            backends: backends.into_iter().cloned().collect(),
            ..Self::default()
        }
        .with_keys(Vec::new())
    }

    /// Returns a table and a domain that occur twice together.
    pub(crate) fn repeated_host(&self) -> Option<(&str, &str)> {
        let mut tables: HashMap<&str, HashSet<&str>> = HashMap::new();
        self.route_tables.iter().find_map(|table| {
            let seen = tables.entry(&table.name).or_default();
            let repeated = table.domains().find(|domain| !seen.insert(domain))?;
            Some((table.name.as_str(), repeated))
        })
    }
}

/// A virtual host whose parts may be in several pieces. They are collected first, because appending
/// them one by one would copy the first part again and again.
struct HostParts<'p> {
    first: &'p EncodedHost,
    more: Vec<&'p Entry>,
}

impl<'p> HostParts<'p> {
    fn new(first: &'p EncodedHost) -> Self {
        let more = Vec::new();
        Self { first, more }
    }

    fn domain(&self) -> &'p str {
        self.first.domain()
    }

    fn joined(&self) -> EncodedHost {
        let Self { first, more } = self;
        match more.as_slice() {
            [] => EncodedHost::clone(first),
            more => EncodedHost {
                entry: first.entry.continued(more),
                // Only a virtual host with several routes is divided.
                is_served: true,
            },
        }
    }
}
