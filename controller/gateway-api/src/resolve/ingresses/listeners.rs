//! The listeners that the rules of an Ingress attach to.
//!
//! An Ingress names no listener. Its rules attach to all HTTP and HTTPS listeners of the Gateway
//! with a hostname in common that allow its namespace. The administrator's IngressClass opens the
//! Gateway's own listeners without a hostname, unless they select namespaces.
//!
//! Of the HTTPS listeners that Ingresses add, rules attach to the listeners of their own Ingress
//! and to those whose hostname covers the host of the rule. Rules for wider hosts stay out of
//! another Ingress's listener. Thus the number of attachments is linear in the number of rules.

use std::collections::HashMap;
use std::ops::Range;

use sesame_proto::schema::Protocol;

use crate::api::Metadata;
use crate::resolve::context::ResolveContext;
use crate::resolve::gateways::CheckedGateway;
use crate::resolve::listeners::{CheckedListener, NamespaceRule};
use crate::resolve::parents::listeners::CommonHostname;
use crate::resolve::syntax::hostnames::Hostname;
use crate::world::Kind;

/// Listeners of a Gateway by position, each with the common hostname.
pub(super) type FoundListeners = Vec<(usize, Vec<CommonHostname>)>;

/// The listeners for rules of one host, by protocol.
#[derive(Default)]
pub(super) struct ListenersOfHost {
    pub(super) http: FoundListeners,
    pub(super) https: FoundListeners,
}

/// The listeners of a Gateway that Ingresses attach to.
pub(super) struct ListenersOfGateway<'g, 'w> {
    gateway: &'g CheckedGateway<'w>,
    /// Positions of the listeners that Ingresses add, by Ingress.
    by_ingress: HashMap<(&'w str, &'w str), Range<usize>>,
    /// Positions of those that are served, by the key of their hostname.
    by_hostname: HashMap<&'g str, usize>,
    /// Number of the other listeners, which come first.
    others: usize,
}

impl<'g, 'w> ListenersOfGateway<'g, 'w> {
    pub(super) fn of(gateway: &'g CheckedGateway<'w>) -> Self {
        let mut by_ingress = HashMap::new();
        let mut by_hostname = HashMap::new();
        let mut others = gateway.listeners.len();
        for source in gateway
            .sets
            .iter()
            .filter(|it| it.owner.kind == Kind::Ingress)
        {
            others = others.min(source.range.start);
            for place in source.range.clone() {
                let listener = gateway.listeners.get(place).filter(|it| it.serves());
                if let Some(hostname) = listener.and_then(|it| it.hostname.as_ref()) {
                    by_hostname.insert(hostname.key(), place);
                }
            }
            let name = (source.owner.namespace, source.owner.name);
            by_ingress.insert(name, source.range.clone());
        }
        Self {
            gateway,
            by_ingress,
            by_hostname,
            others,
        }
    }

    pub(super) fn gateway(&self) -> &'g CheckedGateway<'w> {
        self.gateway
    }

    /// Returns the listener that an Ingress adds for a host.
    pub(super) fn added(
        &self,
        host: &Hostname,
        ingress: &Metadata,
    ) -> Option<&'g CheckedListener<'w>> {
        let mut added = self.added_by(ingress).filter_map(|place| self.get(place));
        added.find(|listener| listener.hostname.as_ref() == Some(host))
    }

    /// Finds the listeners for a host of an Ingress.
    pub(super) fn find(
        &self,
        host: &Hostname,
        ingress: &Metadata,
        cx: &ResolveContext<'_, '_>,
    ) -> ListenersOfHost {
        let own = self.gateway.own_listeners().len();
        let allowing = (0..self.others).filter(|place| {
            self.get(*place).is_some_and(|listener| {
                *place < own && is_opened_by_class(listener)
                    || listener.namespaces.allows(&ingress.namespace, cx.world)
            })
        });
        let covering = host.covering_keys();
        let covering = covering.filter_map(|key| self.by_hostname.get(key).copied());
        let added = self.added_by(ingress);
        let added = added.filter(|place| self.get(*place).is_some_and(CheckedListener::serves));
        let mut places: Vec<usize> = allowing.chain(covering).chain(added).collect();
        places.sort_unstable();
        places.dedup();
        let mut found = ListenersOfHost::default();
        for place in places {
            let Some(listener) = self.get(place) else {
                continue;
            };
            let by_protocol = match listener.protocol {
                Some(Protocol::Http) => &mut found.http,
                Some(Protocol::Https) => &mut found.https,
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

    /// Returns true if an HTTPS listener for all of the host is served.
    pub(super) fn has_https(
        &self,
        host: &Hostname,
        ingress: &Metadata,
        cx: &ResolveContext<'_, '_>,
    ) -> bool {
        let found = self.find(host, ingress, cx).https;
        found.iter().any(|(place, common)| {
            // The common hostname is the host itself if the listener covers all of it.
            let covers = common.iter().any(|common| common.domain == *host);
            covers && self.get(*place).is_some_and(CheckedListener::serves)
        })
    }

    fn added_by(&self, ingress: &Metadata) -> Range<usize> {
        let name = (ingress.namespace.as_str(), ingress.name.as_str());
        self.by_ingress.get(&name).cloned().unwrap_or_default()
    }

    fn get(&self, place: usize) -> Option<&'g CheckedListener<'w>> {
        self.gateway.listeners.get(place)
    }
}

/// Returns true for a listener without a hostname and without a choice of namespaces.
fn is_opened_by_class(listener: &CheckedListener<'_>) -> bool {
    listener.hostname.as_ref() == Some(&Hostname::any())
        && matches!(listener.namespaces, NamespaceRule::Same(_))
}
