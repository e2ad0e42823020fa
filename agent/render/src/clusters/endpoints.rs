//! Endpoint sets, each in its own EDS file or inlined in its cluster.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use envoy_types::pb::envoy::config::core::v3::socket_address::Protocol;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint as EnvoyEndpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
};
use sesame_proto::addresses::{self, RefusedAddress};
use sesame_proto::schema::{AppProtocol, Backend, Endpoint, EndpointSet};

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
    let mut read: BTreeMap<&str, (&Backend, &[u8])> = BTreeMap::new();
    for backend in backends.iter().filter(|b| {
        context.subscriptions.endpoints.contains(b.name.as_str()) && context.has_cluster(&b.name)
    }) {
        let (last, session_key) = read
            .entry(backend.endpoints.as_str())
            .or_insert((backend, &[]));
        *last = backend;
        if !backend.session_key.is_empty() {
            *session_key = &backend.session_key;
        }
    }
    let rules = &context.options.endpoints;
    read.into_iter()
        .map(|(name, (backend, session_key))| {
            let set = sets.get(name).copied();
            let assignment = assignment(name, set, backend.protocol(), session_key, rules);
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
    for EndpointSet { name, endpoints } in endpoints {
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
    let Endpoint { address, port } = endpoint;
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

/// An empty `session_key` omits the session values.
pub(super) fn assignment(
    name: &str,
    set: Option<&EndpointSet>,
    protocol: AppProtocol,
    session_key: &[u8],
    rules: &EndpointRules,
) -> ClusterLoadAssignment {
    let protocol = match protocol {
        AppProtocol::UdpDatagrams => Protocol::Udp,
        AppProtocol::Http1
        | AppProtocol::Http2
        | AppProtocol::Websocket
        | AppProtocol::TcpBytes => Protocol::Tcp,
    };
    let lb_endpoints: Vec<_> = set
        .into_iter()
        .flat_map(|set| &set.endpoints)
        .filter_map(|endpoint| socket(endpoint, rules).ok())
        .map(|(address, port)| LbEndpoint {
            host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(EnvoyEndpoint {
                address: Some(wrappers::socket(address, port, protocol)),
                ..Default::default()
            })),
            metadata: (!session_key.is_empty())
                .then(|| sessions::metadata(session_key, address, port)),
            ..Default::default()
        })
        .collect();
    ClusterLoadAssignment {
        cluster_name: name.to_owned(),
        endpoints: if lb_endpoints.is_empty() {
            Vec::new()
        } else {
            vec![LocalityLbEndpoints {
                lb_endpoints,
                ..Default::default()
            }]
        },
        ..Default::default()
    }
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
                })
                .collect(),
        }
    }

    fn served(set: &EndpointSet, rules: &EndpointRules) -> (usize, Vec<String>) {
        let mut problems = RenderProblems::default();
        check(std::slice::from_ref(set), rules, &mut problems);
        let assignment = assignment(&set.name, Some(set), AppProtocol::Http1, &[], rules);
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
}
