//! Caches the objects that the watches deliver.

use std::collections::{BTreeMap, BTreeSet};

use super::Basis;
use super::kinds::OwnedKind;
use super::owned::{ExistingObject, is_implied};
use super::plan::Inventory;
use super::upstream::ROUTES;
use crate::statuses::{HostsByGateway, ServiceRequests};
use crate::watch::{Received, Unwatched, WatchEvent};
use sesame_kinds::api::NamespacedName;
use sesame_resolver::settings::GatewaySettings;

const MAX_GONE: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WatchedKind {
    Gateway,
    GatewayClass,
    Owned(OwnedKind),
}

impl WatchedKind {
    pub(super) fn always() -> impl Iterator<Item = Self> {
        let owned = OwnedKind::ALL.into_iter();
        let owned = owned.filter(|kind| !ROUTES.contains(kind)).map(Self::Owned);
        [Self::Gateway, Self::GatewayClass].into_iter().chain(owned)
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "Gateway",
            Self::GatewayClass => "GatewayClass",
            Self::Owned(kind) => kind.as_str(),
        }
    }
}

pub(super) type CacheEvent = (WatchedKind, Result<WatchEvent<Received>, Unwatched>);

fn is_optional(kind: OwnedKind) -> bool {
    kind.is_of_fleet() || ROUTES.contains(&kind)
}

#[derive(Default)]
pub(super) struct Cache {
    /// Routes are watched only for second Gateways.
    pub(super) with_routes: bool,
    listed: BTreeSet<WatchedKind>,
    unserved: BTreeSet<WatchedKind>,
    /// True as soon as a Gateway is implied, because its objects must be deleted with it.
    had_implied: bool,
    pub(super) inventory: Inventory,
}

impl Cache {
    pub(super) fn is_complete(&self) -> bool {
        let known = |kind| match kind {
            WatchedKind::Owned(owned) if self.inventory.unwatched.contains(&owned) => true,
            kind if self.is_unneeded(kind) => true,
            kind => self.listed.contains(&kind),
        };
        let routes = ROUTES.into_iter().map(WatchedKind::Owned);
        let routes = routes.filter(|_| self.with_routes);
        WatchedKind::always().chain(routes).all(known)
    }

    /// A starting API server may not serve a kind yet, so kinds of the Gateway API are needed unless
    /// a Gateway is implied.
    fn is_unneeded(&self, kind: WatchedKind) -> bool {
        self.had_implied
            && self.unserved.contains(&kind)
            && matches!(
                kind,
                WatchedKind::Gateway
                    | WatchedKind::GatewayClass
                    | WatchedKind::Owned(OwnedKind::Gateway)
            )
    }

    pub(super) fn has_upstream(&self) -> bool {
        let first = (OwnedKind::Gateway, NamespacedName::default());
        let found = self.inventory.objects.range(first..).next();
        found.is_some_and(|(key, _)| key.0 == OwnedKind::Gateway)
    }

    pub(super) fn update(&mut self, requests: &ServiceRequests, hosts: &HostsByGateway) {
        let Inventory {
            gateways, classes, ..
        } = &mut self.inventory;
        for basis in gateways.values_mut().chain(classes.values_mut()) {
            basis.update(requests, hosts);
        }
    }

    /// Adds the Gateways that only the configuration declares, and removes earlier ones.
    pub(super) fn imply(&mut self, settings: &BTreeMap<NamespacedName, GatewaySettings>) {
        let Inventory {
            gateways,
            classes,
            gone,
            ..
        } = &mut self.inventory;
        self.had_implied |= settings.values().any(|it| it.implied_class.is_some());
        for (bases, of_classes) in [(gateways, false), (classes, true)] {
            bases.retain(|_, basis| {
                let is_implied = is_implied(&basis.uid);
                if is_implied {
                    gone.insert(basis.uid.clone());
                }
                !is_implied
            });
            for (name, found) in settings
                .iter()
                .filter(|(_, it)| it.is_merged() == of_classes)
            {
                if let Some(class) = &found.implied_class
                    && !bases.contains_key(name)
                {
                    let basis = Basis::implied(name, class, of_classes);
                    gone.remove(&basis.uid);
                    bases.insert(name.clone(), basis);
                }
            }
        }
    }

    pub(super) fn apply(&mut self, (watched, event): CacheEvent) {
        let Inventory {
            gateways,
            classes,
            gone,
            objects,
            unwatched,
            absent,
            ..
        } = &mut self.inventory;
        match (event, watched) {
            // Fleet kinds are optional, because the controller might not be permitted to watch
            // them. Route kinds are optional, because their CRDs might be missing.
            (Err(why), WatchedKind::Owned(kind)) if is_optional(kind) => {
                unwatched.insert(kind);
                if why == Unwatched::NotServed {
                    absent.insert(kind);
                }
            }
            (Err(Unwatched::NotServed), _) => {
                self.unserved.insert(watched);
            }
            (Err(Unwatched::Forbidden), _) => {}
            (Ok(WatchEvent::Listed(all)), _) => {
                match watched {
                    WatchedKind::Gateway => {
                        let before = std::mem::take(gateways);
                        gone.extend(before.into_values().map(|basis| basis.uid));
                    }
                    WatchedKind::GatewayClass => {
                        let before = std::mem::take(classes);
                        gone.extend(before.into_values().map(|basis| basis.uid));
                    }
                    WatchedKind::Owned(kind) => {
                        objects.retain(|(of, _), _| *of != kind);
                        unwatched.remove(&kind);
                        absent.remove(&kind);
                    }
                }
                self.listed.insert(watched);
                self.unserved.remove(&watched);
                for received in &all {
                    self.put(watched, received);
                }
            }
            (Ok(WatchEvent::Applied(received)), _) => self.put(watched, &received),
            (Ok(WatchEvent::Deleted(received)), WatchedKind::Gateway) => {
                self.forget(&received.name());
            }
            (Ok(WatchEvent::Deleted(received)), WatchedKind::GatewayClass) => {
                self.forget_class(&received);
            }
            (Ok(WatchEvent::Deleted(received)), WatchedKind::Owned(kind)) => {
                let key = (kind, received.name());
                // Keep a newer object with this name: the response to a write can arrive before
                // older watch events.
                let known = objects.get(&key);
                let is_newer =
                    |known: &ExistingObject| is_later(&known.version, received.version());
                if !received.version().is_empty() && known.is_some_and(is_newer) {
                    return;
                }
                objects.remove(&key);
            }
        }
    }

    fn put(&mut self, watched: WatchedKind, received: &Received) {
        match watched {
            WatchedKind::Gateway => self.put_gateway(received),
            WatchedKind::GatewayClass => {
                self.forget_class(received);
                if let Some(basis) = Basis::for_class(received, &self.inventory.namespace) {
                    self.inventory.gone.remove(&basis.uid);
                    let name = basis.gateway.clone();
                    self.inventory.classes.insert(name, basis);
                }
            }
            WatchedKind::Owned(kind) => self.put_object(kind, received),
        }
    }

    fn put_gateway(&mut self, received: &Received) {
        let name = received.name();
        // An earlier Gateway may have had this name.
        self.forget(&name);
        if let Some(basis) = Basis::of(received) {
            self.inventory.gone.remove(&basis.uid);
            self.inventory.gateways.insert(name, basis);
        }
    }

    /// Remembers the UID, because leftover objects still count as ours.
    fn forget(&mut self, gateway: &NamespacedName) {
        let gone = self.inventory.gateways.remove(gateway);
        self.record_gone(gone);
    }

    fn forget_class(&mut self, class: &Received) {
        let name = NamespacedName::new(&self.inventory.namespace, &class.name().name);
        let gone = self.inventory.classes.remove(&name);
        self.record_gone(gone);
    }

    fn record_gone(&mut self, basis: Option<Basis>) {
        let gone = &mut self.inventory.gone;
        gone.extend(basis.map(|basis| basis.uid));
        while gone.len() > MAX_GONE {
            gone.pop_first();
        }
    }

    pub(super) fn put_object(&mut self, kind: OwnedKind, received: &Received) {
        let observed = existing(kind, received);
        let known = self.inventory.objects.entry((kind, received.name()));
        let known = known.or_insert_with(|| observed.clone());
        // The response to a write may already have provided a newer version.
        if !is_later(&known.version, &observed.version) {
            *known = observed;
        }
    }
}

fn is_later(one: &str, other: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    number(one) > number(other)
}

pub(super) fn existing(kind: OwnedKind, received: &Received) -> ExistingObject {
    let managed = received.kept.managed.as_ref();
    ExistingObject::new(kind, received.version(), received.value().clone(), managed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn late_deletion_keeps_a_newer_object() {
        let service = |version: &str| -> Received {
            let metadata = json!({"name": "edge", "namespace": "web", "resourceVersion": version});
            serde_json::from_value(json!({"metadata": metadata})).expect("an object")
        };
        let watched = WatchedKind::Owned(OwnedKind::Service);
        let deleted = |version| (watched, Ok(WatchEvent::Deleted(service(version))));
        let mut cache = Cache::default();
        cache.put_object(OwnedKind::Service, &service("12"));
        cache.apply(deleted("11"));
        assert_eq!(cache.inventory.objects.len(), 1);
        cache.apply(deleted("13"));
        assert!(cache.inventory.objects.is_empty());
        // A deletion inferred from a list has no version.
        cache.put_object(OwnedKind::Service, &service("14"));
        cache.apply(deleted(""));
        assert!(cache.inventory.objects.is_empty());
    }
}
