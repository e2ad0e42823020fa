//! Limits the size of routes per hostname, per Gateway, and for all Gateways together. A Gateway's
//! limit is shared fairly among namespaces, and the limit for all Gateways is shared fairly among
//! Gateways.
//!
//! All sizes are computed before any route is built. A route that does not fit is left out as a
//! whole, from one virtual host or from the Gateway. If such a route might be security-relevant,
//! all requests that it could match there get an error.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use sesame_proto::refusal;
use sesame_proto::sizes::{MAX_PER_GATEWAY, MAX_PER_VIRTUAL_HOST, in_words, of_external_auth};

use super::placed::{HostnameOwners, PlacedListener};
use crate::resolve::parents::listeners::CommonHostname;
use crate::resolve::routes::attachments::Attachment;
use crate::resolve::routes::matches::{Grpc, RouteMatch};
use crate::resolve::routes::{CheckedRoute, Routes};
use crate::resolve::syntax::hostnames::Hostname;
use crate::world::Kind;

/// Maximum number of rounds of leaving out routes. Each round may increase the bytes charged to a
/// namespace, because leaving out a route may reveal routes that it hid. A namespace that exceeds
/// its share after these rounds loses all of its routes.
const MAX_ROUNDS: usize = 8;

/// The attachment of a route, and one of the hostnames through which the route attaches.
pub(super) type Hosted<'a> = (&'a CommonHostname, &'a Attachment<'a>);

/// A listener with its hostnames and their routes.
pub(super) type WithHosts<'p, 'a> = (&'p PlacedListener<'a>, ListenerHosts<'a>);

/// The hostnames of a listener and of its routes, and the routes for each hostname.
pub(super) struct ListenerHosts<'a> {
    by_domain: HashMap<&'a str, Vec<Hosted<'a>>>,
    domains: Vec<&'a Hostname>,
}

impl<'a> ListenerHosts<'a> {
    /// Collects those hostnames of a listener and its routes that no other listener owns.
    pub(super) fn new(listener: &PlacedListener<'a>, owners: &HostnameOwners<'_>) -> Self {
        let mut by_domain: HashMap<&str, Vec<Hosted<'a>>> = HashMap::new();
        let mut domains: BTreeMap<&str, &Hostname> = BTreeMap::new();
        domains.insert(listener.hostname.key(), listener.hostname);
        for attachment in listener.attachments {
            for host in attachment.hosts {
                let key = host.domain.key();
                by_domain.entry(key).or_default().push((host, attachment));
                domains.insert(key, &host.domain);
            }
        }
        let owned = domains.into_values();
        let domains = owned
            .filter(|domain| owners.owns(listener.hostname, domain))
            .collect();
        Self { by_domain, domains }
    }

    pub(super) fn domains(&self) -> impl Iterator<Item = &'a Hostname> {
        self.domains.iter().copied()
    }

    /// Returns the routes with a hostname that covers the domain, grouped by hostname, most
    /// specific first.
    pub(super) fn covering(&self, domain: &Hostname) -> impl Iterator<Item = &[Hosted<'a>]> {
        domain
            .covering_keys()
            .filter_map(|key| self.by_domain.get(key))
            .map(Vec::as_slice)
    }
}

/// Maximum size of routes in bytes: of each Gateway, and of all Gateways together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoomOfGateways {
    pub(super) each: u64,
    all: u64,
}

impl RoomOfGateways {
    /// Divides `all` bytes among Gateways. `wanted` returns the size that each Gateway's routes
    /// need, and is called only if there might not be room for all. A Gateway that needs less than
    /// an equal share gets that much, and the others share the rest equally.
    pub(crate) fn divide(all: u64, gateways: usize, wanted: impl FnOnce() -> Vec<u64>) -> Self {
        let gateways = u64::try_from(gateways).unwrap_or(u64::MAX);
        let each = if gateways.saturating_mul(MAX_PER_GATEWAY) <= all {
            MAX_PER_GATEWAY
        } else {
            let wanted = wanted().into_iter().map(|size| size.min(MAX_PER_GATEWAY));
            share(wanted.collect(), all).min(MAX_PER_GATEWAY)
        };
        Self { each, all }
    }

    /// Explains the size limit of a Gateway, for messages.
    fn reason(self) -> String {
        let Self { each, all } = self;
        let of_gateway = format!(
            "because all namespaces together may take {}",
            in_words(each)
        );
        if each < MAX_PER_GATEWAY {
            format!(
                "{of_gateway}, the Gateway's share of {} for all Gateways of this controller (see \
                its option --memory-mib)",
                in_words(all)
            )
        } else {
            of_gateway
        }
    }
}

/// The routes that are left out of a Gateway, because their namespaces exceed their shares.
pub(super) struct Room {
    left_out: BTreeMap<usize, String>,
    /// Size in bytes that all routes would have if none were left out.
    pub(super) wanted: u64,
    all_requests: RouteMatch,
    all_calls: RouteMatch,
}

/// The routes that are left out of one virtual host, by index, each with a message for its author.
pub(super) type LeftOut = BTreeMap<usize, String>;

impl Room {
    /// Divides the size limit of a Gateway among the routes of these HTTP and HTTPS listeners.
    pub(super) fn new<'l>(
        listeners: &(impl Iterator<Item = &'l WithHosts<'l, 'l>> + Clone),
        routes: &Routes<'_>,
        of_gateways: RoomOfGateways,
    ) -> Self {
        let mut room = Self::empty();
        for round in 0.. {
            let charges = room.charges(listeners.clone(), routes);
            if round == 0 {
                room.wanted = sum(&charges);
            }
            let more = overdrawn(&charges, routes, of_gateways, round >= MAX_ROUNDS);
            if more.is_empty() {
                break;
            }
            room.left_out.extend(more);
        }
        room
    }

    /// Returns the size in bytes that the routes of these listeners would have if none were left
    /// out.
    pub(super) fn wanted<'l>(
        listeners: impl Iterator<Item = &'l WithHosts<'l, 'l>>,
        routes: &Routes<'_>,
    ) -> u64 {
        sum(&Self::empty().charges(listeners, routes))
    }

    fn empty() -> Self {
        Self {
            left_out: BTreeMap::new(),
            wanted: 0,
            all_requests: RouteMatch::all(),
            all_calls: RouteMatch {
                grpc: Some(Grpc::default()),
                ..RouteMatch::all()
            },
        }
    }

    /// Returns the number of bytes charged to each route. If a virtual host needs copies of routes
    /// with wider hostnames, the oldest route with the virtual host's own hostname is charged for
    /// the copies. Thus no namespace can use up another's share.
    fn charges<'l>(
        &self,
        listeners: impl Iterator<Item = &'l WithHosts<'l, 'l>>,
        routes: &Routes<'_>,
    ) -> BTreeMap<usize, u64> {
        let mut charges: BTreeMap<usize, u64> = BTreeMap::new();
        let mut charge = |route: usize, size: u64| {
            let sum = charges.entry(route).or_default();
            *sum = sum.saturating_add(size);
        };
        for (listener, hosts) in listeners.filter(|(it, _)| !it.listener.refuses()) {
            let filters = listener.listener.filters.external_auth.iter();
            let filters = filters.map(of_external_auth).fold(0, u64::saturating_add);
            for domain in hosts.domains() {
                let mut payer = None;
                let mut copied = filters;
                for level in hosts.covering(domain) {
                    let is_own = level
                        .first()
                        .is_some_and(|(host, _)| host.domain == *domain);
                    let mut takes_all = false;
                    for (_, attachment) in level {
                        let Some(route) = routes.get(attachment.route) else {
                            continue;
                        };
                        if self.left_out.contains_key(&attachment.route) {
                            takes_all |= refuses_all(route);
                            continue;
                        }
                        takes_all |= route.rules.take_all();
                        if is_own {
                            charge(attachment.route, route.size);
                            payer = payer.or(Some(attachment.route));
                        } else {
                            copied = copied.saturating_add(route.size);
                        }
                    }
                    if takes_all {
                        break;
                    }
                }
                if let Some(payer) = payer {
                    charge(payer, copied);
                }
            }
        }
        charges
    }

    /// Returns true if all routes of a domain are left out of the Gateway and none of them rejects
    /// its requests. The requests then go to a wider hostname.
    pub(super) fn is_void<'h>(
        &self,
        mut own: impl Iterator<Item = &'h Hosted<'h>>,
        routes: &Routes<'_>,
    ) -> bool {
        own.all(|(_, attachment)| {
            let route = routes.get(attachment.route);
            let protects = route.is_some_and(|it| it.rules.protecting().is_some());
            self.left_out.contains_key(&attachment.route) && !protects
        })
    }

    /// Returns the routes that are left out of a virtual host: those left out of the Gateway, and
    /// those beyond the limit per hostname. To stay within that limit, routes with a more specific
    /// hostname take precedence, then older routes.
    pub(super) fn left_out(
        &self,
        covering: &[Hosted<'_>],
        listener: &PlacedListener<'_>,
        domain: &Hostname,
        routes: &Routes<'_>,
    ) -> LeftOut {
        let size_of = |route: usize| routes.get(route).map_or(0, |route| route.size);
        let entries = covering.iter().map(|(_, attachment)| attachment.route);
        let upper = entries.clone().map(size_of).fold(0, u64::saturating_add);
        if self.left_out.is_empty() && upper <= MAX_PER_VIRTUAL_HOST {
            return LeftOut::new();
        }
        let entries: BTreeSet<usize> = entries.collect();
        let mut left_out: LeftOut = entries
            .iter()
            .filter_map(|route| Some((*route, self.left_out.get(route)?.clone())))
            .collect();
        let mut order: Vec<(Reverse<(bool, usize)>, usize)> = covering
            .iter()
            .map(|(host, attachment)| (Reverse(host.rank), attachment.route))
            .collect();
        order.sort_unstable();
        let mut seen: BTreeSet<usize> = left_out.keys().copied().collect();
        let mut used = 0_u64;
        for (_, route) in order {
            if !seen.insert(route) {
                continue;
            }
            let (own, before) = (size_of(route), used);
            let all = before.checked_add(own);
            if let Some(all) = all.filter(|all| *all <= MAX_PER_VIRTUAL_HOST) {
                used = all;
            } else {
                let message = format!(
                    "none of its matches is served for hostname {:?} on port {}: they take {}, \
                    and routes with precedence take {}; together at most {} are allowed",
                    domain.domain(),
                    listener.port,
                    in_words(own),
                    in_words(before),
                    in_words(MAX_PER_VIRTUAL_HOST)
                );
                left_out.insert(route, message);
            }
        }
        for (route, message) in &mut left_out {
            if routes
                .get(*route)
                .is_some_and(|it| it.rules.protecting().is_some())
            {
                let refusal = format!(
                    "; some may be security-relevant, so all requests for {} that no route with \
                    precedence matches get {}",
                    if self.left_out.contains_key(route) {
                        "its hostnames"
                    } else {
                        "the hostname"
                    },
                    refusal::HTTP
                );
                message.push_str(&refusal);
            }
        }
        left_out
    }

    /// Returns the match for the requests that a route rejects when it is left out.
    pub(super) fn refused_by(&self, route: &CheckedRoute<'_>) -> &RouteMatch {
        match route.object.kind {
            Kind::GrpcRoute => &self.all_calls,
            _ => &self.all_requests,
        }
    }
}

/// Returns true if a route, when it is left out, rejects every request.
fn refuses_all(route: &CheckedRoute<'_>) -> bool {
    route.object.kind != Kind::GrpcRoute && route.rules.protecting().is_some()
}

/// Returns the routes to leave out so that each namespace stays within its share. In a namespace,
/// older routes take precedence. If `all` is true, a namespace that exceeds its share loses all of
/// its routes.
fn overdrawn(
    charges: &BTreeMap<usize, u64>,
    routes: &Routes<'_>,
    of_gateways: RoomOfGateways,
    all: bool,
) -> BTreeMap<usize, String> {
    let mut left_out = BTreeMap::new();
    let mut namespaces: BTreeMap<&str, Vec<(usize, u64)>> = BTreeMap::new();
    for (place, size) in charges {
        if let Some(route) = routes.get(*place) {
            let namespace = route.object.name.namespace.as_str();
            namespaces
                .entry(namespace)
                .or_default()
                .push((*place, *size));
        }
    }
    let total = |of: &[(usize, u64)]| {
        of.iter()
            .map(|(_, size)| *size)
            .fold(0, u64::saturating_add)
    };
    let wanted = namespaces.values().map(|of| total(of)).collect();
    let share = share(wanted, of_gateways.each);
    let reason = of_gateways.reason();
    for (namespace, of_namespace) in namespaces {
        let wanted = total(&of_namespace);
        if wanted <= share {
            continue;
        }
        let mut used = 0_u64;
        for (place, own) in of_namespace {
            let sum = used.checked_add(own);
            if let Some(sum) = sum.filter(|sum| *sum <= share && !all) {
                used = sum;
            } else {
                let message = format!(
                    "none of its matches is served: the routes in namespace {namespace} take {} \
                    of this Gateway's configuration, this route {}; the share of the namespace is \
                    {}, {reason}",
                    in_words(wanted),
                    in_words(own),
                    in_words(share)
                );
                left_out.insert(place, message);
            }
        }
    }
    left_out
}

fn sum(charges: &BTreeMap<usize, u64>) -> u64 {
    charges.values().copied().fold(0, u64::saturating_add)
}

/// Returns the maximum for each consumer if all consumers together may use `most`. A consumer that
/// wants less than an equal share gets that much, and the others share the rest equally.
pub(crate) fn share(mut wanted: Vec<u64>, most: u64) -> u64 {
    wanted.sort_unstable();
    let mut left = most;
    let mut sharing = u64::try_from(wanted.len()).unwrap_or(u64::MAX);
    for one in wanted {
        let share = left / sharing.max(1);
        if one > share {
            return share;
        }
        left -= one;
        sharing -= 1;
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_shares_are_met_and_rest_is_divided() {
        const MAX: u64 = MAX_PER_GATEWAY;
        for (wanted, expected) in [
            (vec![], MAX),
            (vec![MAX], MAX),
            (vec![MAX + 1], MAX),
            (vec![MAX / 2, MAX / 2], MAX),
            (vec![1, MAX], MAX - 1),
            (vec![u64::MAX, MAX, MAX / 4], MAX * 3 / 8),
        ] {
            assert_eq!(share(wanted.clone(), MAX), expected, "{wanted:?}");
        }
    }

    #[test]
    fn gateways_share_what_all_may_have() {
        const MAX: u64 = MAX_PER_GATEWAY;
        let each = |all: u64, wanted: &[u64]| {
            RoomOfGateways::divide(all, wanted.len(), || wanted.to_vec()).each
        };
        assert_eq!(each(u64::MAX, &[MAX; 9]), MAX);
        assert_eq!(each(2 * MAX, &[MAX, MAX]), MAX);
        // A Gateway that wants more than the limit per Gateway takes nothing from the others.
        assert_eq!(each(2 * MAX, &[u64::MAX, MAX / 2, MAX / 2]), MAX);
        assert_eq!(each(2 * MAX, &[MAX; 4]), MAX / 2);
        assert_eq!(each(MAX, &[MAX, 100]), MAX - 100);
    }
}
