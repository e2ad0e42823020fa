//! Selects routes for connections and datagrams.
//!
//! The listener with the most specific hostname on a port receives a connection. Among its routes,
//! the most specific hostname wins, then the oldest route. TCP and UDP listeners have no server
//! names, so their oldest route receives all traffic.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use sesame_proto::schema;

use super::displaced::{self, Displaced};
use super::placed::PlacedListener;
use crate::resolve::parents::listeners::CommonHostname;
use crate::resolve::routes::Routes;
use crate::resolve::routes::attachments::Attachment;
use crate::resolve::routes::rules::Rules;
use crate::resolve::syntax::hostnames::Hostname;
use crate::status::Reason;

/// `owns` returns true unless a more specific listener receives connections for the hostname.
pub(crate) fn by_server_name(
    listener: &PlacedListener<'_>,
    routes: &Routes<'_>,
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
                    displaced::winner(winner, *route, routes)
                ),
            );
        }
    }
    by_route
        .into_iter()
        .filter_map(|(route, mut hostnames)| {
            hostnames.sort_unstable();
            let hostnames = hostnames.iter().map(|name| name.domain().to_owned());
            to_schema(route, hostnames.collect(), listener, routes, terminates)
        })
        .collect()
}

/// Returns the oldest route, which receives all traffic, and reports the others.
pub(crate) fn oldest(
    listener: &PlacedListener<'_>,
    routes: &Routes<'_>,
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
                displaced::winner(winner, loser.route, routes)
            ),
        );
    }
    first
        .and_then(|attachment| to_schema(attachment.route, Vec::new(), listener, routes, false))
        .into_iter()
        .collect()
}

fn to_schema(
    place: usize,
    hostnames: Vec<String>,
    listener: &PlacedListener<'_>,
    routes: &Routes<'_>,
    terminated: bool,
) -> Option<schema::L4Route> {
    let route = routes.get(place)?;
    let Rules::Connections(shares) = &route.rules else {
        return None;
    };
    let mut backends = if terminated {
        shares.terminated.as_ref()?.backends.clone()
    } else {
        shares.passed.clone()
    };
    listener.reached_by(place).record_in(&mut backends);
    Some(schema::L4Route {
        name: format!("{}/rules/0", route.provenance),
        hostnames,
        backends,
    })
}
