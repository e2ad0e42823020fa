//! Which route the connections and datagrams of one listener go to.
//!
//! A server name belongs to the most specific listener of the port that covers it, and there to the route
//! with the most specific hostname, the oldest of several. Where there are no server names, the oldest
//! route has everything.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use sesame_proto::schema;

use super::attach::{Attachment, Host};
use super::hostnames::Hostname;
use super::routes::Routes;
use super::rules::Rules;

/// By TLS server name; `terminates` says whether the listener ends TLS, and `owns` which hostnames belong to it.
pub(super) fn by_server_name(
    attachments: &[Attachment],
    routes: &Routes,
    terminates: bool,
    owns: impl Fn(&Hostname) -> bool,
) -> Vec<schema::L4Route> {
    let mut hosts: Vec<(usize, &Host)> = attachments
        .iter()
        .flat_map(|attachment| attachment.hosts.iter().map(|host| (attachment.route, host)))
        .filter(|(_, host)| owns(&host.domain))
        .collect();
    hosts.sort_by_key(|(route, host)| (Reverse(host.rank), *route));
    let mut taken: HashSet<&str> = HashSet::new();
    let mut by_route: BTreeMap<usize, Vec<&Hostname>> = BTreeMap::new();
    for (route, host) in hosts {
        if taken.insert(host.domain.key()) {
            by_route.entry(route).or_default().push(&host.domain);
        }
    }
    by_route
        .into_iter()
        .filter_map(|(route, mut hostnames)| {
            hostnames.sort_unstable();
            let hostnames = hostnames.iter().map(|name| name.domain().to_owned());
            to_schema(route, hostnames.collect(), routes, terminates)
        })
        .collect()
}

/// The oldest route.
pub(super) fn oldest(attachments: &[Attachment], routes: &Routes) -> Vec<schema::L4Route> {
    attachments
        .first()
        .and_then(|attachment| to_schema(attachment.route, Vec::new(), routes, false))
        .into_iter()
        .collect()
}

fn to_schema(
    route: usize,
    hostnames: Vec<String>,
    routes: &Routes,
    terminated: bool,
) -> Option<schema::L4Route> {
    let route = routes.get(route)?;
    let Rules::Connections(shares) = &route.rules else {
        return None;
    };
    let backends = if terminated {
        &shares.terminated.as_ref()?.backends
    } else {
        &shares.passed
    };
    Some(schema::L4Route {
        name: format!("{}/rules/0", route.provenance),
        hostnames,
        backends: backends.clone(),
    })
}
