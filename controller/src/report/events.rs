//! Writes Events of Gateways, for people who look at an object with `kubectl describe`: a certificate expires, or clients
//! refuse it. Each is written once, by the replica that leads; the next leader writes it again. Statuses say the same for as
//! long as it is so: nothing may depend on an Event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::PartialObjectMeta;
use kube::core::request::Request;
use kube::runtime::events::{Event, EventType, Recorder, Reporter as Instance};
use kube::{Client, Resource as _};
use tokio::sync::watch;

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
    pub(crate) client: Client,
    pub(crate) instance: String,
    pub(crate) leading: watch::Receiver<bool>,
    pub(crate) expiring: watch::Receiver<Expiring>,
}

impl Events {
    /// Runs until the senders of its channels are gone.
    pub(crate) async fn run(mut self) {
        let instance = Instance {
            controller: CONTROLLER.to_owned(),
            instance: Some(self.instance.clone()),
        };
        let recorder = Recorder::new(self.client.clone(), instance);
        let mut told = BTreeSet::new();
        loop {
            let mut all_told = true;
            if *self.leading.borrow_and_update() {
                let expiring = self.expiring.borrow_and_update().clone();
                told.retain(|(gateway, warning)| {
                    expiring
                        .get(gateway)
                        .is_some_and(|all| all.contains(warning))
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
                changed = self.leading.changed() => changed,
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
        let url = <Received>::url_path(&resource, Some(&gateway.namespace));
        let request = Request::new(url)
            .get_metadata(&gateway.name, &kube::api::GetParams::default())
            .map_err(kube::Error::BuildRequest)?;
        let found: PartialObjectMeta = match self.client.request(request).await {
            Ok(found) => found,
            // The Gateway is gone: nobody would read the Event.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) => return Err(error),
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

/// Hands over the warnings, if they have changed.
pub(super) fn tell(now: &Expiring, before: &watch::Sender<Expiring>) {
    before.send_if_modified(|before| {
        let differs = before != now;
        if differs {
            before.clone_from(now);
        }
        differs
    });
}

/// Returns the warnings that have not been told, in order.
fn untold(
    expiring: &Expiring,
    told: &BTreeSet<(NamespacedName, Warning)>,
) -> Vec<(NamespacedName, Warning)> {
    expiring
        .iter()
        .flat_map(|(gateway, warnings)| {
            warnings
                .iter()
                .map(|warning| (gateway.clone(), warning.clone()))
        })
        .filter(|one| !told.contains(one))
        .collect()
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
