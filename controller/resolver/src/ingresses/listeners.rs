//! Finds the listeners to which the rules in HTTPProxies and Ingresses attach.
//!
//! Rules attach to every HTTP and HTTPS listener of the Gateway that shares a hostname, allows
//! their namespace, and has the port in `spec.ingress.http` or `https`, if set. The Gateway's own
//! listeners that have no hostname and allow only the Gateway's namespace also count. The
//! administrator permits this by creating the IngressClass.
//!
//! Each TLS host becomes an implicit listener. A rule for a wider host never attaches to another
//! object's implicit listener, so the number of attachments is linear in the number of rules.

use std::collections::HashMap;
use std::mem;
use std::ops::Range;

use sesame_proto::schema::Protocol;

use super::ports::IngressPorts;
use crate::context::ResolveContext;
use crate::gateways::CheckedGateway;
use crate::listeners::implicit::HostClients;
use crate::listeners::{CheckedListener, ListenerOwner, NamespaceRule};
use crate::parents::listeners::CommonHostname;
use crate::syntax::hostnames::Hostname;
use sesame_kinds::api::Metadata;
use sesame_kinds::world::Kind;

/// Listener indices, with the hostnames that each listener shares with a rule.
pub(crate) type FoundListeners = Vec<(usize, Vec<CommonHostname>)>;

#[derive(Clone, Default)]
pub(crate) struct ListenersOfHost {
    pub(crate) http: FoundListeners,
    pub(crate) https: FoundListeners,
}

impl ListenersOfHost {
    pub(crate) fn is_empty(&self) -> bool {
        self.http.is_empty() && self.https.is_empty()
    }

    pub(crate) fn both(self) -> FoundListeners {
        let Self { mut http, https } = self;
        http.extend(https);
        http.sort_by_key(|(place, _)| *place);
        http
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnerName<'a> {
    kind: Kind,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> OwnerName<'a> {
    pub(crate) fn of(kind: Kind, metadata: &'a Metadata) -> Self {
        Self {
            kind,
            namespace: &metadata.namespace,
            name: &metadata.name,
        }
    }
}

pub(crate) struct ListenersOfGateway<'g, 'w> {
    gateway: &'g CheckedGateway<'w>,
    pub(crate) ports: IngressPorts,
    /// Indices of implicit listeners.
    by_owner: HashMap<OwnerName<'w>, Range<usize>>,
    /// Contains only listeners that serve routes.
    by_hostname: HashMap<&'g str, usize>,
    /// Number of listeners before the implicit ones.
    others: usize,
    /// No route attaches to it.
    fallback: Option<&'g CheckedListener<'w>>,
}

impl<'g, 'w> ListenersOfGateway<'g, 'w> {
    pub(crate) fn of(gateway: &'g CheckedGateway<'w>, ports: IngressPorts) -> Self {
        let mut by_owner = HashMap::new();
        let mut by_hostname = HashMap::new();
        let mut others = gateway.listeners.len();
        let mut fallback = None;
        let implicit = gateway.sets.iter();
        for source in implicit.filter(|it| it.owner.kind != Kind::ListenerSet) {
            others = others.min(source.range.start);
            if source.is_fallback {
                fallback = gateway.listeners.get(source.range.start);
                continue;
            }
            for place in source.range.clone() {
                let listener = gateway.listeners.get(place).filter(|it| it.serves());
                if let Some(hostname) = listener.and_then(|it| it.hostname.as_ref()) {
                    by_hostname.insert(hostname.key(), place);
                }
            }
            let ListenerOwner {
                kind,
                namespace,
                name,
                ..
            } = source.owner;
            let name = OwnerName {
                kind,
                namespace,
                name,
            };
            by_owner.insert(name, source.range.clone());
        }
        Self {
            gateway,
            ports,
            by_owner,
            by_hostname,
            others,
            fallback,
        }
    }

    pub(crate) fn fallback(&self) -> Option<&'g CheckedListener<'w>> {
        self.fallback
    }

    pub(crate) fn gateway(&self) -> &'g CheckedGateway<'w> {
        self.gateway
    }

    pub(crate) fn added(
        &self,
        host: &Hostname,
        owner: OwnerName<'_>,
    ) -> Option<&'g CheckedListener<'w>> {
        let mut added = self.added_by(owner).filter_map(|place| self.get(place));
        added.find(|listener| listener.hostname.as_ref() == Some(host))
    }

    /// Returns the owner's TLS listener for `host`, if it serves routes.
    pub(crate) fn of_connections(
        &self,
        host: &Hostname,
        owner: OwnerName<'_>,
    ) -> Option<(FoundListeners, &'g CheckedListener<'w>)> {
        let mut added = self.added_by(owner);
        let place = added.find(|place| {
            let listener = self.get(*place).filter(|it| it.serves());
            listener.is_some_and(|it| {
                it.protocol == Some(Protocol::Tls) && it.hostname.as_ref() == Some(host)
            })
        })?;
        let whole = CommonHostname {
            domain: host.clone(),
            rank: host.specificity(),
        };
        Some((vec![(place, vec![whole])], self.get(place)?))
    }

    pub(crate) fn is_added(&self, place: usize, owner: OwnerName<'_>) -> bool {
        self.added_by(owner).contains(&place)
    }

    pub(crate) fn find(
        &self,
        host: &Hostname,
        owner: OwnerName<'_>,
        cx: &ResolveContext<'_, '_>,
    ) -> ListenersOfHost {
        let own = self.gateway.own_listeners().len();
        let allowing = (0..self.others).filter(|place| {
            self.get(*place).is_some_and(|listener| {
                *place < own && is_opened_by_class(listener)
                    || listener.namespaces.allows(owner.namespace, cx.world)
            })
        });
        let covering = host.covering_keys();
        let covering = covering.filter_map(|key| self.by_hostname.get(key).copied());
        let added = self.added_by(owner);
        let added = added.filter(|place| self.get(*place).is_some_and(CheckedListener::serves));
        let mut places: Vec<usize> = allowing.chain(covering).chain(added).collect();
        places.sort_unstable();
        places.dedup();
        // If the object's own listener holds or has lost the hostname, no wider HTTPS listener may
        // serve the host.
        let added = self.added(host, owner);
        let is_held = added.is_some_and(|it| it.holds.is_some() || it.has_yielded());
        let mut found = ListenersOfHost::default();
        for place in places {
            let Some(listener) = self.get(place) else {
                continue;
            };
            let IngressPorts { http, https } = self.ports;
            let is_on = |port: Option<u16>| port.is_none() || listener.port == port;
            let by_protocol = match listener.protocol {
                Some(Protocol::Http) if is_on(http) => &mut found.http,
                Some(Protocol::Https) if is_on(https) && !is_held => &mut found.https,
                _ => continue,
            };
            let common = listener.hostname.as_ref().and_then(|it| it.intersect(host));
            if let Some(domain) = common {
                let rank = host.specificity();
                by_protocol.push((place, vec![CommonHostname { domain, rank }]));
            }
        }
        found
    }

    pub(crate) fn has_https(
        &self,
        host: &Hostname,
        owner: OwnerName<'_>,
        cx: &ResolveContext<'_, '_>,
    ) -> bool {
        let found = self.find(host, owner, cx).https;
        found.iter().any(|(place, common)| {
            let covers = common.iter().any(|common| common.domain == *host);
            covers && self.get(*place).is_some_and(CheckedListener::serves)
        })
    }

    /// Removes and returns the listeners that do not validate clients as required. Without a
    /// requirement, these are the listeners of Ingresses with one, because only their rules set the
    /// headers that describe the client.
    pub(super) fn remove_unvalidated(
        &self,
        https: &mut FoundListeners,
        clients: Option<&HostClients>,
    ) -> FoundListeners {
        let validates = |place: usize| {
            self.get(place).is_some_and(|listener| {
                let is_free = clients.is_none() && listener.owner != Kind::Ingress;
                is_free || listener.clients == clients
            })
        };
        let (valid, others) = mem::take(https)
            .into_iter()
            .partition(|(place, _)| validates(*place));
        *https = valid;
        others
    }

    fn added_by(&self, owner: OwnerName<'_>) -> Range<usize> {
        self.by_owner.get(&owner).cloned().unwrap_or_default()
    }

    fn get(&self, place: usize) -> Option<&'g CheckedListener<'w>> {
        self.gateway.listeners.get(place)
    }
}

fn is_opened_by_class(listener: &CheckedListener<'_>) -> bool {
    listener.hostname.as_ref() == Some(&Hostname::any())
        && matches!(listener.namespaces, NamespaceRule::Same(_))
}
