//! Limits the size of routes per hostname, per Gateway and in total, with fair shares for
//! namespaces and Gateways.
//!
//! Sizes are computed before any route is built. A route that does not fit is left out entirely.
//! If that route might be security-relevant, its requests get an error.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use sesame_proto::refusal;
use sesame_proto::sizes::{MAX_PER_GATEWAY, MAX_PER_VIRTUAL_HOST, in_words, of_external_auth};

use super::placed::{HostnameOwners, PlacedListener};
use crate::listeners::implicit::FallbackRole;
use crate::parents::listeners::CommonHostname;
use crate::routes::attachments::Attachment;
use crate::routes::matches::{Grpc, RouteMatch};
use crate::routes::{CheckedRoute, Routes};
use crate::syntax::hostnames::Hostname;
use sesame_kinds::world::Kind;

/// Maximum number of rounds. Leaving out a route may expose routes that it hid, so each round may
/// increase charges. A namespace that exceeds its share after the last round loses all routes.
const MAX_ROUNDS: usize = 8;

pub(super) type Hosted<'a> = (&'a CommonHostname, &'a Attachment<'a>);

pub(super) type WithHosts<'p, 'a> = (&'p PlacedListener<'a>, ListenerHosts<'a>);

pub(super) struct ListenerHosts<'a> {
    by_domain: HashMap<&'a str, Vec<Hosted<'a>>>,
    domains: Vec<&'a Hostname>,
}

impl<'a> ListenerHosts<'a> {
    /// Skips hostnames that other listeners own.
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

    /// Returns the routes that cover `domain`, grouped by hostname, most specific first.
    pub(super) fn covering(&self, domain: &Hostname) -> impl Iterator<Item = &[Hosted<'a>]> {
        domain
            .covering_keys()
            .filter_map(|key| self.by_domain.get(key))
            .map(Vec::as_slice)
    }
}

/// Size limits per Gateway and for all Gateways, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoomOfGateways {
    pub(super) each: u64,
    all: u64,
}

impl RoomOfGateways {
    /// Divides space as in [`share`]. `wanted` returns each Gateway's size, and is only called if
    /// space might be short.
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

    fn reason(self) -> String {
        let Self { each, all } = self;
        let gateway_limit = format!(
            "because all namespaces together are limited to {}",
            in_words(each)
        );
        if each < MAX_PER_GATEWAY {
            format!(
                "{gateway_limit}, the Gateway's share of {} for all Gateways of this controller (see \
                its option --memory-mib)",
                in_words(all)
            )
        } else {
            gateway_limit
        }
    }
}

/// Routes left out because their namespaces exceed their shares.
pub(super) struct Room {
    left_out: BTreeMap<usize, String>,
    /// Size of all routes in bytes, including routes that are left out.
    pub(super) wanted: u64,
    all_requests: RouteMatch,
    all_calls: RouteMatch,
}

/// Messages for route authors, by route index.
pub(super) type ExcludedRoutes = BTreeMap<usize, String>;

impl Room {
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

    /// Returns the size of all routes in bytes, before any are left out.
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

    /// A virtual host contains copies of routes with wider hostnames. Its own oldest route is
    /// charged for the copies, so that no namespace can use up another namespace's share.
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
            let is_member = listener.listener.fallback == Some(FallbackRole::Member);
            for domain in hosts.domains() {
                // The fallback listener also has the host.
                let times = 1 + u64::from(is_member && domain == listener.hostname);
                let mut charge = |route, size: u64| charge(route, size.saturating_mul(times));
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
                        takes_all |= route.rules.match_all_requests();
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

    /// Returns true if all routes are left out and none of them rejects requests. A wider hostname
    /// then receives the requests.
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

    /// Returns the routes to leave out of a virtual host, including routes left out of the entire
    /// Gateway. More specific hostnames take precedence, then older routes.
    pub(super) fn left_out(
        &self,
        covering: &[Hosted<'_>],
        listener: &PlacedListener<'_>,
        domain: &Hostname,
        routes: &Routes<'_>,
    ) -> ExcludedRoutes {
        let size_of = |route: usize| routes.get(route).map_or(0, |route| route.size);
        let entries = covering.iter().map(|(_, attachment)| attachment.route);
        let upper = entries.clone().map(size_of).fold(0, u64::saturating_add);
        if self.left_out.is_empty() && upper <= MAX_PER_VIRTUAL_HOST {
            return ExcludedRoutes::new();
        }
        let entries: BTreeSet<usize> = entries.collect();
        let mut left_out: ExcludedRoutes = entries
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

    /// Returns the match for requests to reject if the route is left out.
    pub(super) fn refused_by(&self, route: &CheckedRoute<'_>) -> &RouteMatch {
        match route.object.kind {
            Kind::GrpcRoute => &self.all_calls,
            _ => &self.all_requests,
        }
    }
}

/// Returns true if the route rejects every request when left out.
fn refuses_all(route: &CheckedRoute<'_>) -> bool {
    route.object.kind != Kind::GrpcRoute && route.rules.protecting().is_some()
}

/// Returns the routes to leave out, with messages. Older routes take precedence. If `all` is true,
/// a namespace that exceeds its share loses all routes.
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
                    of this Gateway's configuration, this route takes {}; the namespace's share is \
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

/// Returns the maximum per consumer (max-min fairness). A consumer that wants less than an equal
/// share gets its full demand, and the others divide the rest equally.
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
    fn gateways_share_total_limit() {
        const MAX: u64 = MAX_PER_GATEWAY;
        let each = |all: u64, wanted: &[u64]| {
            RoomOfGateways::divide(all, wanted.len(), || wanted.to_vec()).each
        };
        assert_eq!(each(u64::MAX, &[MAX; 9]), MAX);
        assert_eq!(each(2 * MAX, &[MAX, MAX]), MAX);
        // Demand above a Gateway's limit does not reduce the other Gateways' shares.
        assert_eq!(each(2 * MAX, &[u64::MAX, MAX / 2, MAX / 2]), MAX);
        assert_eq!(each(2 * MAX, &[MAX; 4]), MAX / 2);
        assert_eq!(each(MAX, &[MAX, 100]), MAX - 100);
    }
}
