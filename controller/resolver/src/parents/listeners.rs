//! Finds the listeners that a parentRef matches, and the hostnames that each shares with the route.

use crate::context::ResolveContext;
use crate::gateways::{CheckedGateway, ParentListeners};
use crate::syntax::hostnames::Hostname;
use crate::syntax::names;
use sesame_kinds::api::ParentRef;
use sesame_kinds::status::{Grounds, Reason};
use sesame_kinds::world::ObjectKey;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommonHostname {
    /// Intersection of the listener's and the route's hostnames.
    pub(crate) domain: Hostname,
    /// Specificity of the route's own hostname.
    pub(crate) rank: (bool, usize),
}

/// Returns listener indices, including invalid listeners. `set` is `None` for the Gateway itself.
/// If `hostnames` is empty, all hosts match.
pub(crate) fn matching(
    gateway: &CheckedGateway<'_>,
    set: Option<usize>,
    reference: &ParentRef,
    route: &ObjectKey,
    hostnames: &[Hostname],
    cx: &ResolveContext<'_, '_>,
) -> Result<Vec<(usize, Vec<CommonHostname>)>, Grounds> {
    let parent = gateway.parent_listeners(set);
    if let Some((_, why)) = parent.refused.fault() {
        return Err((
            Reason::NoMatchingParent,
            format!(
                "{} has no listeners on its Gateway: {why}",
                parent.owner.display()
            ),
        ));
    }
    let mut mismatch = Mismatch::Reference;
    let mut matching = Vec::new();
    for (place, listener) in parent.enumerate() {
        let section = section_name(reference);
        if section.is_some_and(|name| name != listener.spec.name)
            || reference.port.is_some_and(|port| {
                names::port(port).is_none() || names::port(port) != listener.port
            })
        {
            continue;
        }
        if !listener.allows(route.kind, &route.name.namespace, cx) {
            mismatch = mismatch.max(Mismatch::AllowedRoutes);
            continue;
        }
        let Some(own) = &listener.hostname else {
            if mismatch < Mismatch::InvalidHostname("") {
                mismatch = Mismatch::InvalidHostname(&listener.spec.name);
            }
            continue;
        };
        mismatch = mismatch.max(Mismatch::Hostname);
        let hosts = intersect(own, hostnames);
        if !hosts.is_empty() {
            matching.push((place, hosts));
        }
    }
    if matching.is_empty() {
        return Err(detached(mismatch, &parent, reference, route, hostnames));
    }
    // Each route keeps this list until resolution ends, so free unused capacity.
    matching.shrink_to_fit();
    Ok(matching)
}

/// Later variants are closer to a match.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mismatch<'g> {
    Reference,
    AllowedRoutes,
    Hostname,
    /// The first listener whose own hostname is invalid.
    InvalidHostname(&'g str),
}

fn detached(
    mismatch: Mismatch<'_>,
    parent: &ParentListeners<'_, '_>,
    reference: &ParentRef,
    route: &ObjectKey,
    hostnames: &[Hostname],
) -> Grounds {
    let name = parent.owner.display();
    match mismatch {
        Mismatch::Reference => {
            let mut wanted = Vec::new();
            if let Some(section) = section_name(reference) {
                wanted.push(format!("sectionName {section:?}"));
            }
            if let Some(port) = reference.port {
                wanted.push(format!("port {port}"));
            }
            let known: Vec<String> = parent
                .enumerate()
                .map(|(_, listener)| {
                    format!("{} (port {})", listener.spec.name, listener.spec.port)
                })
                .collect();
            (
                Reason::NoMatchingParent,
                format!(
                    "{name} has no listener with {}; it has {}",
                    wanted.join(" and "),
                    known.join(", ")
                ),
            )
        }
        Mismatch::AllowedRoutes => (
            Reason::NotAllowedByListeners,
            format!(
                "no listener of {name} allows a {} in namespace {:?}; see allowedRoutes of its listeners",
                route.kind, route.name.namespace
            ),
        ),
        Mismatch::InvalidHostname(listener) => (
            Reason::NoMatchingListenerHostname,
            format!(
                "the hostname of listener {listener:?} of {name} is invalid, so no route can \
                match it; see the listener's status"
            ),
        ),
        Mismatch::Hostname => {
            let hostnames: Vec<&str> = hostnames.iter().map(Hostname::as_str).collect();
            (
                Reason::NoMatchingListenerHostname,
                format!(
                    "no listener of {name} has a hostname in common with {}",
                    hostnames.join(", ")
                ),
            )
        }
    }
}

fn section_name(reference: &ParentRef) -> Option<&str> {
    reference
        .section_name
        .as_deref()
        .filter(|name| !name.is_empty())
}

fn intersect(own: &Hostname, hostnames: &[Hostname]) -> Vec<CommonHostname> {
    if hostnames.is_empty() {
        return vec![CommonHostname {
            domain: own.clone(),
            rank: Hostname::any().specificity(),
        }];
    }
    let in_common = hostnames.iter().filter_map(|hostname| {
        Some(CommonHostname {
            domain: own.intersect(hostname)?,
            rank: hostname.specificity(),
        })
    });
    let mut all: Vec<CommonHostname> = in_common.collect();
    all.shrink_to_fit();
    all
}
