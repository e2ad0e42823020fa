//! Endpoint sets, each in its own EDS file or inlined in its cluster.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use envoy_types::pb::envoy::config::core::v3::Locality;
use envoy_types::pb::envoy::config::core::v3::socket_address::Protocol;
use envoy_types::pb::envoy::config::endpoint::v3::cluster_load_assignment::Policy;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint as EnvoyEndpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
};
use sesame_proto::addresses::{self, RefusedAddress};
use sesame_proto::schema::{AppProtocol, Backend, Endpoint, EndpointSet, ZonePreference};

use crate::context::{EndpointRules, RenderContext};
use crate::http::sessions;
use crate::rendered::{RenderProblems, Resource};
use crate::wrappers;

pub(crate) type Sets<'a> = BTreeMap<&'a str, &'a EndpointSet>;

pub(crate) fn sets(endpoints: &[EndpointSet]) -> Sets<'_> {
    endpoints.iter().map(|s| (s.name.as_str(), s)).collect()
}

pub(crate) fn render(
    backends: &[&Backend],
    sets: &Sets<'_>,
    context: &RenderContext<'_>,
) -> Vec<Resource> {
    // Clusters with the same set share its file.
    let mut read: BTreeMap<&str, (&Backend, Extras<'_>)> = BTreeMap::new();
    for backend in backends.iter().filter(|b| {
        context.subscriptions.endpoints.contains(b.name.as_str()) && context.has_cluster(&b.name)
    }) {
        let entry = read.entry(backend.endpoints.as_str());
        let (last, extras) = entry.or_insert((backend, Extras::default()));
        *last = backend;
        if !backend.session_key.is_empty() {
            extras.session_key = &backend.session_key;
        }
        // A Service's backends have the same preference.
        extras.preference = extras.preference.or(backend.zone_preference);
        extras.has_fallback |= !backend.fallback.is_empty();
    }
    let rules = &context.options.endpoints;
    read.into_iter()
        .map(|(name, (backend, extras))| {
            let set = sets.get(name).copied();
            let assignment = assignment(name, set, backend.protocol(), extras, rules);
            Resource::new(name, &assignment)
        })
        .collect()
}

/// Reports endpoints that are left out. An invalid endpoint would make Envoy reject the whole set,
/// and a forbidden one must not receive requests.
pub(crate) fn check(
    endpoints: &[EndpointSet],
    rules: &EndpointRules,
    problems: &mut RenderProblems,
) {
    for EndpointSet {
        name,
        endpoints,
        zones: _,
        weights: _,
    } in endpoints
        .iter()
        .filter(|it| !EndpointSet::counts_hosts(&it.name))
    {
        let mut refused = endpoints
            .iter()
            .filter_map(|endpoint| socket(endpoint, rules).err());
        let Some(first) = refused.next() else {
            continue;
        };
        let what = match refused.count() {
            0 => format!("{first}; it is left out"),
            more => format!("{first}; it and {more} more are left out"),
        };
        problems.add(name, what);
    }
}

fn socket(endpoint: &Endpoint, rules: &EndpointRules) -> Result<(IpAddr, u32), String> {
    let Endpoint {
        address,
        port,
        zone: _,
        group: _,
    } = endpoint;
    let number = u16::try_from(*port).ok().filter(|number| *number > 0);
    let number = number
        .ok_or_else(|| format!("endpoint {address:?}: invalid port {port}, expected 1 to 65535"))?;
    let Ok(ip) = address.parse::<IpAddr>() else {
        return Err(format!("endpoint {address:?} is not an IP address"));
    };
    if rules.local {
        return Ok((ip, *port));
    }
    if let Some(RefusedAddress { network, what, .. }) = addresses::refused(ip) {
        return Err(format!(
            "endpoint {ip} is rejected: {what} ({network}); --allow-local-endpoints allows it"
        ));
    }
    if !rules.host.is_empty() && addresses::forms(ip).any(|ip| rules.host.contains(&ip)) {
        return Err(format!(
            "endpoint {ip} is rejected: it is an address of this host; `--host-endpoints allow` \
             permits such endpoints"
        ));
    }
    if rules
        .own
        .contains(&SocketAddr::new(ip.to_canonical(), number))
    {
        return Err(format!(
            "endpoint {ip} port {port} is rejected: this host itself listens there, so requests would loop"
        ));
    }
    Ok((ip, *port))
}

/// Percentage by which Envoy multiplies the share of healthy endpoints. The fallback gets requests only
/// if the product is below 100 percent.
const WHILE_ANY_IS_HEALTHY: u32 = 1_000_000;

/// What clusters add to their endpoints.
#[derive(Clone, Copy, Default)]
pub(super) struct Extras<'a> {
    /// If empty, session values are omitted.
    session_key: &'a [u8],
    preference: Option<ZonePreference>,
    has_fallback: bool,
}

impl<'a> Extras<'a> {
    pub(super) fn of(backend: &'a Backend) -> Self {
        Self {
            session_key: &backend.session_key,
            preference: backend.zone_preference,
            has_fallback: !backend.fallback.is_empty(),
        }
    }
}

pub(super) fn assignment(
    name: &str,
    set: Option<&EndpointSet>,
    protocol: AppProtocol,
    extras: Extras<'_>,
    rules: &EndpointRules,
) -> ClusterLoadAssignment {
    let Extras {
        session_key,
        preference,
        has_fallback,
    } = extras;
    let protocol = match protocol {
        AppProtocol::UdpDatagrams => Protocol::Udp,
        AppProtocol::Http1
        | AppProtocol::Http2
        | AppProtocol::Websocket
        | AppProtocol::TcpBytes => Protocol::Tcp,
    };
    let endpoints = set.into_iter().flat_map(|set| &set.endpoints);
    let endpoints = endpoints.filter_map(|endpoint| {
        let (address, port) = socket(endpoint, rules).ok()?;
        let served = LbEndpoint {
            host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(EnvoyEndpoint {
                address: Some(wrappers::socket(address, port, protocol)),
                ..Default::default()
            })),
            metadata: (!session_key.is_empty())
                .then(|| sessions::metadata(session_key, address, port)),
            ..Default::default()
        };
        Some((endpoint, served))
    });
    let endpoints = match set {
        Some(set) if !set.weights.is_empty() => by_weight(&set.weights, endpoints),
        _ => by_zone(set, preference, &rules.zone, endpoints),
    };
    ClusterLoadAssignment {
        cluster_name: name.to_owned(),
        endpoints,
        policy: has_fallback.then(|| Policy {
            overprovisioning_factor: wrappers::uint32(WHILE_ANY_IS_HEALTHY),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Envoy identifies groups by locality, and rejects weights that it cannot add up.
fn by_weight<'e>(
    weights: &[u32],
    endpoints: impl Iterator<Item = (&'e Endpoint, LbEndpoint)>,
) -> Vec<LocalityLbEndpoints> {
    let weights = weights.iter().take(EndpointSet::MAX_WEIGHTS).zip(1..);
    let group = |(weight, number): (&u32, u32)| LocalityLbEndpoints {
        locality: Some(Locality {
            sub_zone: number.to_string(),
            ..Default::default()
        }),
        load_balancing_weight: wrappers::uint32((*weight).clamp(1, EndpointSet::MAX_WEIGHT)),
        ..Default::default()
    };
    let mut groups: Vec<LocalityLbEndpoints> = weights.map(group).collect();
    for (endpoint, served) in endpoints {
        let place = usize::try_from(endpoint.group).ok();
        let group = place.and_then(|number| groups.get_mut(number.checked_sub(1)?));
        if let Some(group) = group {
            group.lb_endpoints.push(served);
        }
    }
    groups.retain(|group| !group.lb_endpoints.is_empty());
    groups
}

fn by_zone<'e>(
    set: Option<&EndpointSet>,
    preference: Option<ZonePreference>,
    own_zone: &str,
    endpoints: impl Iterator<Item = (&'e Endpoint, LbEndpoint)>,
) -> Vec<LocalityLbEndpoints> {
    let own_zone = set.and_then(|set| number_of_zone(set, own_zone));
    let preferred = own_zone.zip(preference);
    let mut near = Vec::new();
    let mut far = Vec::new();
    for (endpoint, served) in endpoints {
        let is_near = preferred.is_some_and(|(zone, _)| zone == endpoint.zone);
        let list = if is_near { &mut near } else { &mut far };
        list.push(served);
    }
    let least = preferred.map_or(0, |(_, preference)| preference.min_endpoints.max(1));
    let groups = if u32::try_from(near.len()).is_ok_and(|near| near < least) {
        // Keep the set's order.
        let mut all = near;
        all.append(&mut far);
        [all, Vec::new()]
    } else {
        [near, far]
    };
    // A group gets the requests that exceed the capacity of the healthy endpoints before it.
    let groups = groups.into_iter().filter(|group| !group.is_empty());
    let by_priority = groups
        .zip(0..)
        .map(|(lb_endpoints, priority)| LocalityLbEndpoints {
            lb_endpoints,
            priority,
            ..Default::default()
        });
    by_priority.collect()
}

fn number_of_zone(set: &EndpointSet, zone: &str) -> Option<u32> {
    let place = set
        .zones
        .iter()
        .position(|it| it == zone && !zone.is_empty())?;
    u32::try_from(place + 1).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn set(endpoints: &[(&str, u32)]) -> EndpointSet {
        EndpointSet {
            name: "Service/default/web/80".to_owned(),
            endpoints: endpoints
                .iter()
                .map(|(address, port)| Endpoint {
                    address: (*address).to_owned(),
                    port: *port,
                    ..Endpoint::default()
                })
                .collect(),
            ..EndpointSet::default()
        }
    }

    fn served(set: &EndpointSet, rules: &EndpointRules) -> (usize, Vec<String>) {
        let mut problems = RenderProblems::default();
        check(std::slice::from_ref(set), rules, &mut problems);
        let assignment = assignment(
            &set.name,
            Some(set),
            AppProtocol::Http1,
            Extras::default(),
            rules,
        );
        let served = assignment.endpoints.iter().map(|l| l.lb_endpoints.len());
        let problems = problems.distinct();
        let messages = problems.iter().map(ToString::to_string).collect();
        (served.sum(), messages)
    }

    #[test]
    fn unsafe_endpoints_are_refused_and_others_served() {
        let own = "192.0.2.7:8080".parse().unwrap();
        let rules = EndpointRules {
            own: BTreeSet::from([own]),
            ..EndpointRules::default()
        };
        let hostile = set(&[
            ("127.0.0.1", 9901),
            ("169.254.169.254", 80),
            ("64:ff9b::a9fe:a9fe", 80),
            ("192.0.2.7", 8080),
            ("::ffff:192.0.2.7", 8080),
            ("localhost", 80),
            ("192.0.2.8", 0),
            ("192.0.2.7", 8081),
            ("192.0.2.8", 8080),
        ]);
        let (count, messages) = served(&hostile, &rules);
        assert_eq!(count, 2);
        assert_eq!(
            messages,
            [
                "Service/default/web/80: endpoint 127.0.0.1 is rejected: loopback (127.0.0.0/8); \
              --allow-local-endpoints allows it; it and 6 more are left out"
            ]
        );
        let (count, messages) = served(&set(&[("192.0.2.7", 8080)]), &rules);
        assert_eq!(count, 0);
        assert!(messages[0].contains("requests would loop"), "{messages:?}");

        let host = EndpointRules {
            host: BTreeSet::from(["192.0.2.7".parse().unwrap()]),
            ..EndpointRules::default()
        };
        let itself = set(&[("192.0.2.7", 9100), ("64:ff9b::c000:207", 9100)]);
        let (count, messages) = served(&itself, &host);
        assert_eq!(count, 0);
        assert!(
            messages[0].contains("an address of this host;"),
            "{messages:?}"
        );
        assert_eq!(served(&set(&[("192.0.2.8", 9100)]), &host).0, 1);

        let allowed = EndpointRules {
            local: true,
            ..rules
        };
        let (count, messages) = served(&hostile, &allowed);
        assert_eq!((count, messages.len()), (7, 1), "{messages:?}");
    }
    #[test]
    fn zones_with_enough_endpoints_are_preferred() {
        let mut zoned = set(&[("192.0.2.1", 80), ("192.0.2.2", 80), ("192.0.2.3", 80)]);
        zoned.zones = vec!["a".to_owned(), "b".to_owned()];
        for (endpoint, zone) in zoned.endpoints.iter_mut().zip([1, 2, 0]) {
            endpoint.zone = zone;
        }
        let groups = |zone: &str, min_endpoints: Option<u32>| {
            let rules = EndpointRules {
                zone: zone.to_owned(),
                ..EndpointRules::default()
            };
            let extras = Extras {
                preference: min_endpoints.map(|min_endpoints| ZonePreference { min_endpoints }),
                ..Extras::default()
            };
            let assignment = assignment(
                &zoned.name,
                Some(&zoned),
                AppProtocol::Http1,
                extras,
                &rules,
            );
            let groups = assignment.endpoints.iter();
            let groups = groups.map(|it| (it.priority, it.lb_endpoints.len()));
            groups.collect::<Vec<_>>()
        };
        assert_eq!(groups("b", Some(0)), [(0, 1), (1, 2)]);
        assert_eq!(groups("b", Some(1)), [(0, 1), (1, 2)]);
        for equal in [
            groups("b", Some(2)),
            groups("b", None),
            groups("c", Some(0)),
            groups("", Some(0)),
        ] {
            assert_eq!(equal, [(0, 3)]);
        }
    }
}
