//! Adds the listeners of ListenerSets, and of HTTPProxies and Ingresses with TLS hosts, to
//! Gateways. They take precedence in this order and never affect the Gateway's own listeners.

use std::collections::HashMap;
use std::ops::Range;

use super::check::check as check_listeners;
use super::implicit::{self, FallbackRole, HostClients, ImplicitListeners};
use super::listener::{CheckedListener, ListenerOwner};
use super::namespaces::NamespaceRule;
use crate::context::ResolveContext;
use crate::syntax::limits;
use sesame_kinds::api::{
    AllowedListeners, GATEWAY_GROUP, Listener, ListenerSet, Metadata, ObjectRef,
};
use sesame_kinds::status::{Reason, Verdict};
use sesame_kinds::world::{Kind, ObjectKey, World};

#[derive(Clone, Copy)]
pub(crate) struct ListenerSource<'w> {
    kind: Kind,
    metadata: &'w Metadata,
    listeners: &'w [Listener],
    clients: Option<&'w HostClients>,
    fallback: Option<FallbackRole>,
}

impl ListenerSource<'_> {
    fn layer(&self) -> usize {
        match self.kind {
            // An Ingress without hostname keeps its requests.
            _ if self.is_fallback() => 3,
            Kind::Ingress => 2,
            Kind::HttpProxy => 1,
            _ => 0,
        }
    }

    fn is_fallback(&self) -> bool {
        self.fallback == Some(FallbackRole::Listener)
    }

    pub(crate) fn key(&self) -> ObjectKey {
        self.kind.named(self.metadata.key())
    }
}

pub(crate) struct CheckedListenerSet<'w> {
    pub(crate) owner: ListenerOwner<'w>,
    pub(crate) metadata: &'w Metadata,
    /// Why the object is rejected as a whole.
    pub(crate) refused: Verdict,
    /// Range in the Gateway's list of listeners.
    pub(crate) range: Range<usize>,
    /// True for the fallback listener, which all HTTPProxies of the Gateway share.
    pub(crate) is_fallback: bool,
    /// Obstacles that affect no listener, for the message of the `Accepted` condition.
    pub(crate) notes: Vec<String>,
}

/// Returns lists by the Gateway's namespace and name. Each list is in order of precedence: by kind,
/// then by age.
pub(crate) fn by_gateway<'w>(
    world: &'w World,
    implicit: &'w [ImplicitListeners<'w>],
) -> HashMap<(&'w str, &'w str), Vec<ListenerSource<'w>>> {
    let sets = world.listener_sets.iter().filter_map(|set| {
        let source = ListenerSource {
            kind: Kind::ListenerSet,
            metadata: &set.metadata,
            listeners: &set.spec.listeners,
            clients: None,
            fallback: None,
        };
        Some((gateway_of(set)?, source))
    });
    let implicit = implicit.iter().map(|it| {
        let source = ListenerSource {
            kind: it.kind,
            metadata: it.metadata,
            listeners: &it.listeners,
            clients: it.clients.as_ref(),
            fallback: it.fallback,
        };
        (it.gateway, source)
    });
    let mut found: HashMap<(&str, &str), Vec<ListenerSource<'_>>> = HashMap::new();
    for (gateway, source) in sets.chain(implicit) {
        found.entry(gateway).or_default().push(source);
    }
    for sources in found.values_mut() {
        sources.sort_by(|a, b| {
            let by_layer = a.layer().cmp(&b.layer());
            by_layer.then_with(|| a.metadata.by_age(b.metadata))
        });
    }
    found
}

/// Returns `None` if the parent is not a Gateway.
pub(crate) fn gateway_of(set: &ListenerSet) -> Option<(&str, &str)> {
    let ObjectRef {
        group,
        kind,
        name,
        namespace,
    } = &set.spec.parent_ref;
    let group = group.as_deref().unwrap_or(GATEWAY_GROUP);
    let kind = kind.as_deref().unwrap_or(Kind::Gateway.as_str());
    let namespace = namespace.as_deref().unwrap_or(&set.metadata.namespace);
    (group == GATEWAY_GROUP && kind == Kind::Gateway.as_str()).then_some((namespace, name.as_str()))
}

/// Only ListenerSets need permission from `allowedListeners`. For HTTPProxies and Ingresses, the
/// IngressClass grants permission.
pub(crate) fn check<'w>(
    gateway: &ListenerOwner<'w>,
    allowed: Option<&'w AllowedListeners>,
    sources: &[ListenerSource<'w>],
    all: &mut Vec<CheckedListener<'w>>,
    cx: &mut ResolveContext<'w, '_>,
) -> Vec<CheckedListenerSet<'w>> {
    let rule = allowed_namespaces(gateway, allowed, cx);
    let mut states = Vec::with_capacity(sources.len());
    for (i, source) in sources.iter().enumerate() {
        let ListenerSource {
            kind,
            metadata,
            listeners,
            clients,
            fallback,
        } = source;
        let is_set = *kind == Kind::ListenerSet;
        let owner = ListenerOwner::of(*kind, metadata);
        let mut refused = Verdict::default();
        if is_set && !rule.allows(owner.namespace, cx.world) {
            refused.refuse(
                Reason::NotAllowed,
                format!(
                    "Gateway {}/{} does not allow ListenerSets in namespace {:?}; see its spec.allowedListeners",
                    gateway.namespace, gateway.name, owner.namespace
                ),
            );
        }
        owner.check_name(&mut refused);
        let number = limits::entries("spec.listeners", listeners.len(), 1..=limits::MAX_LISTENERS);
        refused.refuse_if(Reason::Invalid, number.err().filter(|_| is_set));
        let start = all.len();
        // If an unknown field may be security-relevant, the listeners keep their hostnames and
        // reject all requests.
        let withheld = owner.unknown.refusal(match kind {
            Kind::HttpProxy => "routes",
            Kind::Ingress => "rules",
            _ => "listeners",
        });
        if refused.good() {
            let checked = check_listeners(&owner, i.saturating_add(1), listeners);
            all.extend(checked.into_iter().map(|listener| CheckedListener {
                withheld: withheld.clone().or(listener.withheld),
                clients: *clients,
                fallback: *fallback,
                provenance: if is_set {
                    listener.provenance
                } else {
                    implicit::provenance(gateway, &listener.spec.name)
                },
                ..listener
            }));
        }
        refused.refuse_if(Reason::UnsupportedValue, withheld);
        states.push(CheckedListenerSet {
            owner,
            metadata,
            refused,
            range: start..all.len(),
            is_fallback: source.is_fallback(),
            notes: Vec::new(),
        });
    }
    states
}

fn allowed_namespaces<'w>(
    gateway: &ListenerOwner<'w>,
    allowed: Option<&'w AllowedListeners>,
    cx: &mut ResolveContext<'w, '_>,
) -> NamespaceRule<'w> {
    let namespaces = allowed.and_then(|allowed| allowed.namespaces.as_ref());
    NamespaceRule::of_listener_sets(namespaces, gateway.namespace).unwrap_or_else(|why| {
        cx.problems.add(
            gateway.key(),
            format!("spec.{why}; no ListenerSet is allowed until this is fixed"),
        );
        NamespaceRule::Nothing
    })
}
