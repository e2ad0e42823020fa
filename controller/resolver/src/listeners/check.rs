//! Checks each listener of an object individually.

use std::collections::HashMap;

use sesame_proto::dns_name::is_dns_subdomain;
use sesame_proto::schema;

use super::filters::CheckedFilters;
use super::listener::{CheckedListener, ListenerOwner, Rank};
use super::namespaces::NamespaceRule;
use super::{protocols, termination};
use crate::policies::traffic::TrafficSettings;
use crate::syntax::hostnames::Hostname;
use crate::syntax::{limits, names};
use sesame_kinds::api::{AllowedRoutes, Listener, Protocol, RouteGroupKind};
use sesame_kinds::status::{Reason, Verdict};
use sesame_kinds::world::Kind;

/// `object` becomes the `object` field of each [`Rank`].
pub(crate) fn check<'w>(
    owner: &ListenerOwner<'w>,
    object: usize,
    listeners: &'w [Listener],
) -> Vec<CheckedListener<'w>> {
    let rank = Rank { gateway: 0, object };
    let mut names: HashMap<&str, usize> = HashMap::new();
    for listener in listeners {
        *names.entry(&listener.name).or_default() += 1;
    }
    listeners
        .iter()
        .enumerate()
        .map(|(index, listener)| {
            let unique = names.get(listener.name.as_str()) == Some(&1);
            check_one(owner, rank, index, listener, unique)
        })
        .collect()
}

fn check_one<'w>(
    owner: &ListenerOwner<'w>,
    rank: Rank,
    index: usize,
    spec: &'w Listener,
    unique: bool,
) -> CheckedListener<'w> {
    let Listener {
        name,
        hostname,
        port,
        protocol,
        tls,
        allowed_routes,
        // Filters are resolved once all listeners are known.
        filters: _,
    } = spec;
    let mut accepted = Verdict::default();
    let mut resolved = Verdict::default();
    let mut unsupported = |message: String| accepted.refuse(Reason::UnsupportedValue, message);

    let withheld = owner.unknown.refusal_of("listeners", index);
    // TCP and UDP listeners have no hostname to hold, so report the error immediately.
    let has_hostname = !matches!(protocol, Protocol::Tcp | Protocol::Udp);
    let (withheld, at_once) = if has_hostname {
        (withheld, None)
    } else {
        (None, withheld)
    };
    let faults = at_once.into_iter().chain(name_faults(name, unique));
    faults.for_each(&mut unsupported);
    let number = names::port(*port);
    if number.is_none() {
        unsupported(format!("port {port} is out of range; expected 1 to 65535"));
    }
    let host = check_hostname(hostname.as_deref(), protocol, &mut unsupported);
    termination::faults(protocol, tls.as_ref())
        .into_iter()
        .for_each(&mut unsupported);

    let AllowedRoutes {
        namespaces,
        kinds: asked,
    } = allowed_routes.as_ref().unwrap_or(&DEFAULT_ALLOWED_ROUTES);
    let namespaces =
        NamespaceRule::of_routes(namespaces.as_ref(), owner.namespace).unwrap_or_else(|why| {
            unsupported(why);
            NamespaceRule::Nothing
        });
    let (protocol, kinds) = check_kinds(protocol, asked, &mut accepted, &mut resolved);

    CheckedListener {
        spec,
        owner: owner.kind,
        rank,
        provenance: format!("{}/listeners/{name}", owner.key()),
        protocol,
        port: number,
        hostname: host,
        kinds,
        namespaces,
        accepted,
        withheld,
        accepted_message: owner.unknown.append_harmless(
            "the listener is valid",
            "listeners",
            Some(index),
        ),
        conflict: None,
        beyond_share: false,
        holds: None,
        resolved,
        traffic: TrafficSettings::default(),
        overlaps: Vec::new(),
        certificate_overlaps: Vec::new(),
        clients: None,
        fallback: None,
        client_bundle: None,
        tls: None,
        filters: CheckedFilters::default(),
        certificate_names: Vec::new(),
        uncovered: None,
        lacks_certificate: false,
        advice: Vec::new(),
    }
}

fn name_faults(name: &str, unique: bool) -> Vec<String> {
    let mut faults = Vec::new();
    if !is_dns_subdomain(name) {
        faults.push(format!(
            "name {name:?} is not a DNS name of a-z, 0-9, '-' and '.'; rename the listener"
        ));
    }
    if !unique {
        faults.push(format!(
            "name {name:?} is used by several listeners; names must be unique"
        ));
    }
    faults
}

fn check_hostname(
    hostname: Option<&str>,
    protocol: &Protocol,
    unsupported: &mut impl FnMut(String),
) -> Option<Hostname> {
    let host = match Hostname::parse(hostname.unwrap_or_default()) {
        Ok(host) => host,
        Err(why) => {
            unsupported(format!("hostname {why}"));
            return None;
        }
    };
    if matches!(protocol, Protocol::Tcp | Protocol::Udp) && !host.as_str().is_empty() {
        unsupported(format!("hostname must not be set with protocol {protocol}"));
    }
    Some(host)
}

/// The returned protocol is `None` if unsupported.
fn check_kinds(
    protocol: &Protocol,
    asked: &[RouteGroupKind],
    accepted: &mut Verdict,
    resolved: &mut Verdict,
) -> (Option<schema::Protocol>, Vec<Kind>) {
    let too_many = limits::entries("allowedRoutes.kinds", asked.len(), 0..=limits::MAX_KINDS).err();
    accepted.refuse_if(Reason::UnsupportedValue, too_many);
    let served = protocols::of_protocol(protocol);
    if served.is_none() {
        accepted.refuse(
            Reason::UnsupportedProtocol,
            format!(
                "protocol {:?} is not supported; expected one of {}",
                protocol.as_str(),
                protocols::PROTOCOLS
            ),
        );
    }
    let supported = served.map(|(_, kinds)| kinds).unwrap_or_default();
    let (kinds, unknown) = protocols::allowed(supported, asked);
    if !unknown.is_empty() {
        let supported: Vec<&str> = supported.iter().map(|kind| kind.as_str()).collect();
        resolved.refuse(
            Reason::InvalidRouteKinds,
            format!(
                "allowedRoutes.kinds lists {}, which protocol {protocol} does not support; supported kinds: {}",
                unknown.join(", "),
                if supported.is_empty() { "none".to_owned() } else { supported.join(", ") }
            ),
        );
    }
    (served.map(|(protocol, _)| protocol), kinds)
}

static DEFAULT_ALLOWED_ROUTES: AllowedRoutes = AllowedRoutes {
    namespaces: None,
    kinds: Vec::new(),
};
