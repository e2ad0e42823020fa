//! Writes Events of Gateways, for people who look at an object with `kubectl describe`: a certificate expires, or clients
//! refuse it. Each is written once, by the replica that leads; the next leader writes it again. Statuses say the same for as
//! long as it is so: nothing may depend on an Event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Api;
use kube::runtime::events::{Event, EventType, Recorder, Reporter as Instance};
use tokio::sync::watch;

use crate::replica::Replica;
use crate::watch::{Received, api_resource};
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::expiry::Warning;
use sesame_gateway_api::world::Kind;

const API_VERSION: &str = "gateway.networking.k8s.io/v1";
const CONTROLLER: &str = "projectsesame.io/gateway-controller";
/// Pause between two Events: a thousand certificates may expire on one day.
const PACE: Duration = Duration::from_millis(100);
/// Pause before an Event that could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(30);
/// Largest number of characters of an Event's text (the API's limit is a kilobyte).
const MAX_NOTE: usize = 900;

/// Warnings about the certificates of each Gateway.
pub(crate) type Expiring = BTreeMap<NamespacedName, Vec<Warning>>;

/// Everything the task of events owns.
pub(crate) struct Events {
    pub(crate) replica: Replica,
    pub(crate) expiring: watch::Receiver<Expiring>,
}

impl Events {
    /// Runs until the senders of its channels are gone.
    pub(crate) async fn run(mut self) {
        let instance = Instance {
            controller: CONTROLLER.to_owned(),
            instance: Some(self.replica.identity.clone()),
        };
        let recorder = Recorder::new(self.replica.client.clone(), instance);
        let mut told = BTreeSet::new();
        loop {
            let mut all_told = true;
            if *self.replica.leading.borrow_and_update() {
                let expiring = self.expiring.borrow_and_update().clone();
                told.retain(|(gateway, warning): &(NamespacedName, Warning)| {
                    let all = expiring.get(gateway);
                    all.is_some_and(|all| all.contains(warning))
                });
                for (gateway, warning) in untold(&expiring, &told) {
                    if let Err(error) = self.tell(&recorder, &gateway, &warning).await {
                        tracing::warn!(%gateway, %error, "an event cannot be written");
                        all_told = false;
                        break;
                    }
                    told.insert((gateway, warning));
                    tokio::time::sleep(PACE).await;
                }
            }
            let changed = tokio::select! {
                changed = self.replica.leading.changed() => changed,
                changed = self.expiring.changed() => changed,
                () = tokio::time::sleep(AGAIN), if !all_told => Ok(()),
            };
            if changed.is_err() {
                return;
            }
        }
    }

    async fn tell(
        &self,
        recorder: &Recorder,
        gateway: &NamespacedName,
        warning: &Warning,
    ) -> kube::Result<()> {
        let resource = api_resource(Kind::Gateway, API_VERSION);
        let client = self.replica.client.clone();
        let api: Api<Received> = Api::namespaced_with(client, &gateway.namespace, &resource);
        let Some(found) = api.get_metadata_opt(&gateway.name).await? else {
            // The Gateway is gone: nobody would read the Event.
            return Ok(());
        };
        let regarding = ObjectReference {
            api_version: Some(API_VERSION.to_owned()),
            kind: Some(Kind::Gateway.as_str().to_owned()),
            namespace: Some(gateway.namespace.clone()),
            name: Some(gateway.name.clone()),
            uid: found.metadata.uid,
            ..ObjectReference::default()
        };
        let Warning { message, refused } = warning;
        let reason = if *refused {
            "CertificateNotValid"
        } else {
            "CertificateExpires"
        };
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(message.chars().take(MAX_NOTE).collect()),
            action: "CheckCertificate".to_owned(),
            secondary: None,
        };
        recorder.publish(&event, &regarding).await
    }
}

/// Returns the warnings that have not been told, in order.
fn untold(
    expiring: &Expiring,
    told: &BTreeSet<(NamespacedName, Warning)>,
) -> Vec<(NamespacedName, Warning)> {
    let all = expiring.iter().flat_map(|(gateway, warnings)| {
        let of_gateway = |warning: &Warning| (gateway.clone(), warning.clone());
        warnings.iter().map(of_gateway)
    });
    all.filter(|one| !told.contains(one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_not_told_again() {
        let warning = |message: &str| Warning {
            message: message.to_owned(),
            refused: false,
        };
        let gateway = NamespacedName::new("default", "edge");
        let expiring = Expiring::from([(gateway.clone(), vec![warning("a"), warning("b")])]);
        let told = BTreeSet::from([(gateway.clone(), warning("a"))]);
        assert_eq!(untold(&expiring, &told), [(gateway, warning("b"))]);
    }
}
