//! Selects routes for connections and datagrams.
//!
//! The listener with the most specific hostname on a port receives a connection. Among its routes,
//! the most specific hostname wins, then the oldest route. TCP and UDP listeners have no server
//! names, so their oldest route receives all traffic.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use sesame_proto::schema;

use super::displaced::{self, Displaced};
use super::placed::PlacedListener;
use crate::parents::listeners::CommonHostname;
use crate::policies::traffic::connections::RouteChecks;
use crate::routes::Routes;
use crate::routes::attachments::Attachment;
use crate::routes::rules::Rules;
use crate::syntax::hostnames::Hostname;
use sesame_kinds::status::Reason;

/// Maximum number of networks in the address filters of all layer 4 routes in a snapshot, because
/// Envoy holds a copy for each server name. The namespaces of these routes share this maximum
/// equally.
pub(crate) const MAX_NETWORKS: usize = 100_000;

pub(crate) struct L4Routes<'a, 'w> {
    routes: &'a Routes<'w>,
    networks_of_each: usize,
    /// By namespace.
    networks: BTreeMap<&'a str, usize>,
}

impl<'a, 'w> L4Routes<'a, 'w> {
    pub(crate) fn new(routes: &'a Routes<'w>) -> Self {
        let l4_routes = routes.iter().filter(|it| it.object.kind.is_l4_route());
        let namespaces: BTreeSet<&str> = l4_routes.map(|it| &*it.object.name.namespace).collect();
        Self {
            routes,
            networks_of_each: MAX_NETWORKS / namespaces.len().max(1),
            networks: BTreeMap::new(),
        }
    }
}

/// `owns` returns true unless a more specific listener receives connections for the hostname.
pub(crate) fn by_server_name(
    listener: &PlacedListener<'_>,
    l4_routes: &mut L4Routes<'_, '_>,
    terminates: bool,
    owns: impl Fn(&Hostname) -> bool,
    displaced: &mut Displaced,
) -> Vec<schema::L4Route> {
    let mut hosts: Vec<(&Attachment<'_>, &CommonHostname)> = listener
        .attachments
        .iter()
        .flat_map(|attachment| attachment.hosts.iter().map(move |host| (attachment, host)))
        .filter(|(_, host)| owns(&host.domain))
        .collect();
    hosts.sort_by_key(|(attachment, host)| (Reverse(host.rank), attachment.route));
    let mut taken: HashMap<&str, (usize, &CommonHostname)> = HashMap::new();
    let mut by_route: BTreeMap<usize, Vec<&Hostname>> = BTreeMap::new();
    for (attachment, host) in hosts {
        let Attachment { route, parent, .. } = attachment;
        let (winner, of_winner) = *taken.entry(host.domain.key()).or_insert_with(|| {
            by_route.entry(*route).or_default().push(&host.domain);
            (*route, host)
        });
        // Do not report connections lost to a more specific hostname, because that is expected.
        if winner != *route && of_winner.rank == host.rank {
            displaced.add(
                *route,
                Some(*parent),
                Reason::OtherRoute,
                format!(
                    "connections for server name {:?} go to {}, which has the same name and is \
                    older",
                    host.domain.domain(),
                    displaced::winner(winner, *route, l4_routes.routes)
                ),
            );
        }
    }
    by_route
        .into_iter()
        .filter_map(|(route, mut hostnames)| {
            hostnames.sort_unstable();
            let hostnames = hostnames.iter().map(|name| name.domain().to_owned());
            let hostnames = hostnames.collect();
            l4_routes.schema_of(route, hostnames, listener, terminates, displaced)
        })
        .collect()
}

/// Returns the oldest route, which receives all traffic, and reports the others.
pub(crate) fn oldest(
    listener: &PlacedListener<'_>,
    l4_routes: &mut L4Routes<'_, '_>,
    displaced: &mut Displaced,
) -> Vec<schema::L4Route> {
    let attachments = listener.attachments;
    let first = attachments.first();
    for loser in attachments.iter().skip(1) {
        let winner = first.map_or(loser.route, |winner| winner.route);
        displaced.add(
            loser.route,
            Some(loser.parent),
            Reason::OtherRoute,
            format!(
                "the route gets no traffic: a listener sends everything to one route, and {} is \
                older",
                displaced::winner(winner, loser.route, l4_routes.routes)
            ),
        );
    }
    first
        .and_then(|attachment| {
            l4_routes.schema_of(attachment.route, Vec::new(), listener, false, displaced)
        })
        .into_iter()
        .collect()
}

impl L4Routes<'_, '_> {
    fn schema_of(
        &mut self,
        place: usize,
        hostnames: Vec<String>,
        listener: &PlacedListener<'_>,
        terminated: bool,
        displaced: &mut Displaced,
    ) -> Option<schema::L4Route> {
        let route = self.routes.get(place)?;
        let Rules::Connections(shares) = &route.rules else {
            return None;
        };
        let mut backends = if terminated {
            shares.terminated.as_ref()?.backends.clone()
        } else {
            shares.passed.clone()
        };
        listener.reached_by(place).record_in(&mut backends);
        let wider = &listener.listener.traffic.connections;
        let RouteChecks {
            mut address_filters,
            exempt_from,
            refused_by,
        } = shares.checks.of_route(wider, &route.provenance);
        let lists = address_filters.iter();
        let networks: usize = lists.map(|it| it.allow.len() + it.deny.len()).sum();
        let networks = networks.saturating_mul(hostnames.len().max(1));
        let each = self.networks_of_each;
        let used = self.networks.entry(&route.object.name.namespace);
        let used = used.or_default();
        let is_too_much = used.saturating_add(networks) > each;
        if is_too_much {
            let mut attachments = listener.attachments.iter();
            let parent = attachments.find(|it| it.route == place);
            displaced.add(
                place,
                parent.map(|it| it.parent),
                Reason::UnsupportedValue,
                format!(
                    "the route gets no traffic: the address filters of its namespace's layer 4 \
                    routes may have {each} of the Gateway's {MAX_NETWORKS} networks, counted for \
                    each hostname"
                ),
            );
        } else {
            *used += networks;
        }
        if is_too_much || !refused_by.is_empty() {
            // Without backends, the route keeps its hostnames, and rejects all traffic.
            backends.clear();
            address_filters.clear();
        }
        Some(schema::L4Route {
            name: format!("{}/rules/0", route.provenance),
            hostnames,
            backends,
            address_filters,
            exempt_from,
            refused_by,
        })
    }
}
