//! Which listeners of a Gateway or ListenerSet a route of any kind attaches to, and with which hostnames.

use crate::api::ParentRef;
use crate::resolve::context::Context;
use crate::resolve::gateways::GatewayState;
use crate::resolve::syntax::hostnames::Hostname;
use crate::resolve::syntax::names;
use crate::status::Reason;
use crate::world::{Kind, ObjectKey};

/// An accepted route on one listener.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// Its place among the routes of its kind, oldest first.
    pub(crate) route: usize,
    /// The place of the reference that it came through, among those in the route's status.
    pub(crate) parent: usize,
    pub(crate) hosts: Vec<Host>,
}

/// One hostname that a route has on a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// What listener and route have in common.
    pub(crate) domain: Hostname,
    /// How specific the route's own hostname is.
    pub(crate) rank: (bool, usize),
}

/// Why a route attaches to no listener.
type Detached = (Reason, String);

/// The listeners of `gateway`, by index, to which the route attaches through `parent`: its own, or those of its
/// ListenerSet `set`.
///
/// `hostnames` are the route's; none means all. The listener's own state does not matter.
pub(crate) fn listeners(
    gateway: &GatewayState<'_>,
    set: Option<usize>,
    parent: &ParentRef,
    kind: Kind,
    namespace: &str,
    hostnames: &[Hostname],
    cx: &Context<'_, '_>,
) -> Result<Vec<(usize, Vec<Host>)>, Detached> {
    let owned = gateway.owned(set);
    let name = owned.name();
    if let Some((_, why)) = owned.refused.fault() {
        return Err((
            Reason::NoMatchingParent,
            format!("{name} has no listeners on its Gateway: {why}"),
        ));
    }
    let port = parent.port;
    let section = parent
        .section_name
        .as_deref()
        .filter(|name| !name.is_empty());
    let mut selected = false;
    let mut allowed = false;
    // With a hostname that cannot be read.
    let mut invalid = None;
    let mut attached = Vec::new();
    for (i, listener) in owned.enumerate() {
        if section.is_some_and(|name| name != listener.spec.name)
            || port.is_some_and(|port| {
                names::port(port).is_none() || names::port(port) != listener.port
            })
        {
            continue;
        }
        selected = true;
        if !listener.allows(kind, namespace, cx) {
            continue;
        }
        allowed = true;
        let Some(own) = &listener.hostname else {
            invalid.get_or_insert(&listener.spec.name);
            continue;
        };
        let hosts = intersect(own, hostnames);
        if !hosts.is_empty() {
            attached.push((i, hosts));
        }
    }
    if !attached.is_empty() {
        return Ok(attached);
    }
    Err(if !selected {
        let mut wanted = Vec::new();
        if let Some(section) = section {
            wanted.push(format!("sectionName {section:?}"));
        }
        if let Some(port) = port {
            wanted.push(format!("port {port}"));
        }
        let known: Vec<String> = owned
            .enumerate()
            .map(|(_, listener)| format!("{} (port {})", listener.spec.name, listener.spec.port))
            .collect();
        (
            Reason::NoMatchingParent,
            format!(
                "{name} has no listener with {}; it has {}",
                wanted.join(" and "),
                known.join(", ")
            ),
        )
    } else if !allowed {
        (
            Reason::NotAllowedByListeners,
            format!(
                "no listener of {name} allows a {kind} of namespace {namespace:?}; see allowedRoutes of its listeners"
            ),
        )
    } else if let Some(invalid) = invalid {
        (
            Reason::NoMatchingListenerHostname,
            format!(
                "the hostname of listener {invalid:?} of {name} is invalid, so that no route has one in common with it; \
                 see the listener's status"
            ),
        )
    } else {
        let hostnames: Vec<&str> = hostnames.iter().map(Hostname::as_str).collect();
        (
            Reason::NoMatchingListenerHostname,
            format!(
                "no listener of {name} has a hostname in common with {}",
                hostnames.join(", ")
            ),
        )
    })
}

/// Whether one of these listeners ends the client's TLS.
pub(crate) fn ends_tls(
    gateway: &GatewayState<'_>,
    set: Option<usize>,
    parent: &ParentRef,
    route: &ObjectKey,
    hostnames: &[Hostname],
    cx: &Context<'_, '_>,
) -> bool {
    let (kind, namespace) = (route.kind, &route.name.namespace);
    let found = listeners(gateway, set, parent, kind, namespace, hostnames, cx).unwrap_or_default();
    let owned = gateway.owned(set);
    let mut ending = owned
        .enumerate()
        .filter(|(_, listener)| listener.tls.is_some());
    ending.any(|(place, _)| found.iter().any(|(found, _)| *found == place))
}

fn intersect(own: &Hostname, hostnames: &[Hostname]) -> Vec<Host> {
    if hostnames.is_empty() {
        return vec![Host {
            domain: own.clone(),
            rank: Hostname::any().specificity(),
        }];
    }
    hostnames
        .iter()
        .filter_map(|hostname| {
            Some(Host {
                domain: own.intersect(hostname)?,
                rank: hostname.specificity(),
            })
        })
        .collect()
}
