//! Indexes the policies of one kind by target. If several policies target the same section, the
//! oldest one applies.

use std::collections::HashMap;

use crate::context::ResolveContext;
use crate::syntax::{limits, names};
use sesame_kinds::api::{LocalPolicyTargetRef, Metadata, NamespacedName, Object, PolicyTargetRef};
use sesame_kinds::status::{Grounds, Reason, Verdict};
use sesame_kinds::world::{Kind, Objects, World};

type TargetName<'w> = (&'w str, &'w str);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamedTarget<'w> {
    group: &'w str,
    kind: &'w str,
    name: &'w str,
    section: Section<'w>,
}

/// A listener, a rule, or a Service port. `None` means the whole target.
type Section<'w> = Option<&'w str>;

impl<'w> From<&'w PolicyTargetRef> for NamedTarget<'w> {
    fn from(target: &'w PolicyTargetRef) -> Self {
        let PolicyTargetRef {
            group,
            kind,
            name,
            section_name,
        } = target;
        Self {
            group,
            kind,
            name,
            section: section_name.as_deref().filter(|name| !name.is_empty()),
        }
    }
}

impl<'w> From<&'w LocalPolicyTargetRef> for NamedTarget<'w> {
    fn from(target: &'w LocalPolicyTargetRef) -> Self {
        let LocalPolicyTargetRef { group, kind, name } = target;
        Self {
            group,
            kind,
            name,
            section: None,
        }
    }
}

pub(crate) struct PolicyTargets<'w> {
    kind: Kind,
    allowed: &'static [Kind],
    /// In order of precedence.
    by_target: HashMap<(Kind, TargetName<'w>), Vec<(usize, Section<'w>)>>,
    policies: Vec<&'w Metadata>,
}

/// Returns the objects in order of precedence, oldest first.
pub(crate) fn by_age<T>(objects: &Objects<Object<T>>) -> Vec<&Object<T>> {
    let mut objects: Vec<&Object<T>> = objects.iter().map(AsRef::as_ref).collect();
    objects.sort_by(|a, b| a.metadata.by_age(&b.metadata));
    objects
}

impl<'w> PolicyTargets<'w> {
    pub(crate) fn new(kind: Kind, allowed: &'static [Kind]) -> Self {
        Self {
            kind,
            allowed,
            by_target: HashMap::new(),
            policies: Vec::new(),
        }
    }

    /// Policies must be added in order of precedence. A policy that lists a target twice is
    /// rejected. A target of an unsupported kind is reported and has no effect.
    pub(crate) fn add<T>(
        &mut self,
        policy: &'w Metadata,
        targets: &'w [T],
        accepted: &mut Verdict,
        cx: &mut ResolveContext<'w, '_>,
    ) where
        NamedTarget<'w>: From<&'w T>,
    {
        let most = limits::MAX_POLICY_TARGETS;
        let number = limits::entries("spec.targetRefs", targets.len(), 1..=most);
        accepted.refuse_if(Reason::Invalid, number.err());
        let place = self.policies.len();
        self.policies.push(policy);
        let mut earlier: Vec<NamedTarget<'w>> = Vec::new();
        for (i, target) in targets.iter().take(most).map(NamedTarget::from).enumerate() {
            let NamedTarget {
                group,
                kind,
                name,
                section,
            } = target;
            let mut allowed = self.allowed.iter().copied();
            let known = allowed.find(|it| it.group() == group && it.as_str() == kind);
            let Some(kind) = known else {
                let named = names::group_kind(group, kind);
                let expected = self.expected();
                let message = format!(
                    "spec.targetRefs[{i}]: {named} {name:?} is not supported and has no effect; \
                     expected {expected}"
                );
                cx.problems.add(self.kind.named(policy.key()), message);
                continue;
            };
            if earlier.contains(&target) {
                let why = format!("spec.targetRefs[{i}]: {kind} {name:?} is already listed");
                accepted.refuse(Reason::Invalid, why);
                continue;
            }
            earlier.push(target);
            let target = (kind, (policy.namespace.as_str(), name));
            let places = self.by_target.entry(target).or_default();
            places.push((place, section));
        }
    }

    fn expected(&self) -> String {
        let name = |kind: &Kind| match (kind.as_str(), kind.group()) {
            (kind, "") => format!("{kind} of the core group"),
            (kind, group) => format!("{kind} of {group}"),
        };
        let names: Vec<String> = self.allowed.iter().map(name).collect();
        names.join(" or ")
    }

    pub(crate) fn has(&self, kind: Kind, name: TargetName<'_>) -> bool {
        self.by_target.contains_key(&(kind, name))
    }

    pub(crate) fn places<'a>(
        &'a self,
        kind: Kind,
        name: TargetName<'a>,
    ) -> &'a [(usize, Section<'a>)] {
        let places = self.by_target.get(&(kind, name));
        places.map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn has_kind(&self, kind: Kind) -> bool {
        self.by_target.keys().any(|(it, _)| *it == kind)
    }

    /// Returns only policies for exactly this section.
    pub(crate) fn at<'a>(
        &'a self,
        kind: Kind,
        name: TargetName<'a>,
        section: Section<'a>,
    ) -> impl Iterator<Item = usize> {
        let places = self.places(kind, name).iter();
        let section_places = places.filter(move |(_, it)| *it == section);
        section_places.map(|(place, _)| *place)
    }

    /// A policy for the section `part` takes precedence over one for the whole object. If `part` is
    /// empty, only a policy for the whole object applies.
    pub(crate) fn applied(&self, kind: Kind, name: TargetName<'_>, part: &str) -> Option<usize> {
        let places = self.places(kind, name);
        let find = |section| places.iter().find(|(_, it)| *it == section);
        let part = Some(part).filter(|part| !part.is_empty());
        let part_place = part.and_then(|part| find(Some(part)));
        part_place.or_else(|| find(None)).map(|(place, _)| *place)
    }

    /// Each error reports an older policy for the same section, or a missing target.
    pub(crate) fn judge(
        &self,
        kind: Kind,
        name: TargetName<'_>,
        world: &World,
    ) -> Vec<(usize, Option<Grounds>)> {
        let places = self.places(kind, name);
        let judge = |(place, section): &(usize, Section<'_>)| {
            let oldest = places.iter().find(|(_, it)| it == section);
            let oldest = oldest.filter(|(oldest, _)| oldest != place);
            let oldest = oldest.and_then(|(oldest, _)| self.policies.get(*oldest));
            let fault = match oldest {
                Some(oldest) => {
                    let why = format!(
                        "{} has an older {}, {}; only the oldest applies",
                        part(kind, name, *section),
                        self.kind,
                        oldest.key()
                    );
                    Some((Reason::Conflicted, why))
                }
                None => missing(kind, name, *section, world),
            };
            (*place, fault)
        };
        places.iter().map(judge).collect()
    }
}

pub(crate) fn part(kind: Kind, (namespace, name): TargetName<'_>, section: Section<'_>) -> String {
    let noun = match kind {
        Kind::Service => "port",
        Kind::Gateway | Kind::ListenerSet => "listener",
        _ => "rule",
    };
    match section {
        Some(section) => format!("{noun} {section:?} of {kind} {namespace}/{name}"),
        None => format!("{kind} {namespace}/{name}"),
    }
}

pub(crate) fn missing(
    kind: Kind,
    name: TargetName<'_>,
    section: Section<'_>,
    world: &World,
) -> Option<Grounds> {
    let at = part(kind, name, section);
    let (namespace, object) = name;
    if !world.contains(&kind.named(NamespacedName::new(namespace, object))) {
        return Some((Reason::TargetNotFound, format!("{at} does not exist")));
    }
    let is_section = |known: &str| Some(known) == section;
    let rule = |known: Option<&str>| known.is_some_and(is_section);
    let has = match kind {
        Kind::Service => world.services.get(namespace, object).is_some_and(|it| {
            let mut ports = it.spec.ports.iter();
            ports.any(|port| is_section(&port.name))
        }),
        Kind::Gateway => world.gateways.get(namespace, object).is_some_and(|it| {
            let mut listeners = it.spec.listeners.iter();
            listeners.any(|listener| is_section(&listener.name))
        }),
        Kind::ListenerSet => world
            .listener_sets
            .get(namespace, object)
            .is_some_and(|it| {
                let mut listeners = it.spec.listeners.iter();
                listeners.any(|listener| is_section(&listener.name))
            }),
        Kind::HttpRoute => world.http_routes.get(namespace, object).is_some_and(|it| {
            let mut rules = it.spec.rules.iter();
            rules.any(|it| rule(it.name.as_deref()))
        }),
        Kind::GrpcRoute => world.grpc_routes.get(namespace, object).is_some_and(|it| {
            let mut rules = it.spec.rules.iter();
            rules.any(|it| rule(it.name.as_deref()))
        }),
        Kind::TlsRoute | Kind::TcpRoute | Kind::UdpRoute => {
            let routes = match kind {
                Kind::TlsRoute => &world.tls_routes,
                Kind::TcpRoute => &world.tcp_routes,
                _ => &world.udp_routes,
            };
            routes.get(namespace, object).is_some_and(|it| {
                let mut rules = it.spec.rules.iter();
                rules.any(|it| rule(it.name.as_deref()))
            })
        }
        _ => false,
    };
    let is_lacking = section.is_some() && !has;
    is_lacking.then(|| (Reason::TargetNotFound, format!("there is no {at}")))
}
