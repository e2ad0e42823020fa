//! Writes the rules of the Roles that grant hosts access to keys. Each Role permits reading only
//! the key Secrets of a fleet's Gateways, or of the Gateways in its annotation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::rbac::v1::{PolicyRule, Role};
use kube::Api;
use kube::api::{ListParams, PostParams};
use tokio::sync::watch;

use crate::publish::{DesiredPublication, DesiredPublications};
use crate::replica::Replica;
use sesame_kinds::api::NamespacedName;
use sesame_published::host_access::{
    ACCESS_FLEET, ACCESS_GATEWAYS, ACCESS_LABEL, GATEWAYS_ANNOTATION, gateway_rules,
};
use sesame_published::names::FLEET_LABEL;

/// Interval between checks. Hosts with a new Role wait up to this long for access to their keys.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of Gateways in a Role. Join tokens have the same limit.
const MAX_GATEWAYS: usize = 256;

pub(crate) struct FleetRoles {
    pub(crate) replica: Replica,
    pub(crate) desired: watch::Receiver<Option<Arc<DesiredPublications>>>,
}

impl FleetRoles {
    pub(crate) async fn run(mut self) {
        let mut before = Fleets::default();
        let mut last_error: Option<String> = None;
        loop {
            let desired = self.desired.borrow_and_update().clone();
            let leading = *self.replica.leading.borrow_and_update();
            if let Some(desired) = desired.filter(|_| leading) {
                before = fleets(&desired);
                let failed = self
                    .update(&before)
                    .await
                    .err()
                    .map(|error| error.to_string());
                if let Some(error) = failed
                    .as_ref()
                    .filter(|error| last_error.as_ref() != Some(*error))
                {
                    tracing::warn!(%error, "cannot update the Roles for keys; hosts may be unable to read keys");
                }
                last_error = failed;
            }
            if !self.changed(&before).await {
                return;
            }
        }
    }

    /// Returns false if the senders were dropped.
    async fn changed(&mut self, before: &Fleets) -> bool {
        let deadline = tokio::time::sleep(POLL_INTERVAL);
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                changed = self.desired.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                    // Ignore the far more common changes to routes and endpoints.
                    let desired = self.desired.borrow_and_update().clone();
                    if desired.is_some_and(|desired| fleets(&desired) != *before) {
                        self.desired.mark_changed();
                        return true;
                    }
                }
                changed = self.replica.leading.changed() => return changed.is_ok(),
                () = &mut deadline => return true,
            }
        }
    }

    async fn update(&self, fleets: &Fleets) -> kube::Result<()> {
        let api: Api<Role> = Api::namespaced(self.replica.client.clone(), &self.replica.namespace);
        let selector = format!("{ACCESS_LABEL} in ({ACCESS_FLEET},{ACCESS_GATEWAYS})");
        let params = ListParams::default().labels(&selector);
        for mut role in api.list(&params).await?.items {
            let present = role.rules.as_deref().unwrap_or_default();
            let (Some(rules), Some(name)) = (fleets.rules_of(&role), role.metadata.name.clone())
            else {
                continue;
            };
            if present == rules {
                continue;
            }
            role.rules = Some(rules);
            match api.replace(&name, &PostParams::default(), &role).await {
                Ok(_) => tracing::info!(role = name, "updated a Role for keys"),
                // The Role was changed or deleted; the next poll handles it.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fleets {
    of: BTreeMap<String, BTreeSet<NamespacedName>>,
    /// Gateways that currently cannot be published. Existing access to their keys is kept.
    retained: BTreeSet<String>,
}

fn fleets(desired: &DesiredPublications) -> Fleets {
    let mut fleets = Fleets::default();
    for (gateway, desired) in desired {
        match desired {
            DesiredPublication::Publish(publication) => {
                let fleet = fleets
                    .of
                    .entry(publication.owner.fleet.clone())
                    .or_default();
                fleet.insert(gateway.clone());
            }
            DesiredPublication::Retain => {
                fleets.retained.insert(gateway.to_string());
            }
        }
    }
    fleets
}

impl Fleets {
    /// Returns `None` if the Role names neither a fleet nor Gateways.
    fn rules_of(&self, role: &Role) -> Option<Vec<PolicyRule>> {
        let labels = role.metadata.labels.as_ref()?;
        if labels.get(ACCESS_LABEL)? == ACCESS_FLEET {
            let present = role.rules.as_deref().unwrap_or_default();
            return Some(self.rules(labels.get(FLEET_LABEL)?, present));
        }
        let annotations = role.metadata.annotations.as_ref()?;
        let names = annotations.get(GATEWAYS_ANNOTATION)?.split(',');
        let gateways = names.filter_map(|name| {
            let (namespace, name) = name.split_once('/')?;
            Some(NamespacedName::new(namespace, name))
        });
        let gateways: Vec<NamespacedName> = gateways.take(MAX_GATEWAYS).collect();
        Some(gateway_rules(&gateways))
    }

    /// Unpublishable Gateways stay in the rules if they are in `present`.
    fn rules(&self, fleet: &str, present: &[PolicyRule]) -> Vec<PolicyRule> {
        let mut gateways = self.of.get(fleet).cloned().unwrap_or_default();
        let names = present
            .iter()
            .flat_map(|rule| rule.resource_names.iter().flatten());
        let retained = names.filter(|name| self.retained.contains(*name));
        gateways.extend(retained.filter_map(|name| {
            let (namespace, name) = name.split_once('/')?;
            Some(NamespacedName::new(namespace, name))
        }));
        let gateways: Vec<NamespacedName> = gateways.into_iter().collect();
        gateway_rules(&gateways)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleet_rules_cover_own_and_retained_gateways() {
        let name = |name| NamespacedName::new("ns", name);
        let fleets = Fleets {
            of: BTreeMap::from([
                ("a".to_owned(), BTreeSet::from([name("one")])),
                ("b".to_owned(), BTreeSet::from([name("two")])),
            ]),
            retained: BTreeSet::from(["ns/three".to_owned()]),
        };
        let before = gateway_rules(&[name("gone"), name("three")]);
        assert_eq!(
            fleets.rules("a", &before),
            gateway_rules(&[name("one"), name("three")])
        );
        assert_eq!(fleets.rules("b", &[]), gateway_rules(&[name("two")]));
        assert!(fleets.rules("c", &[]).is_empty());
    }
}
