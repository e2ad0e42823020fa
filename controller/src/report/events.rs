//! Writes Events of Gateways, for people who look at an object with `kubectl describe`: a certificate expires, or clients
//! refuse it; a host is lost, or reports again. Each is written once, by the replica that leads; the next leader writes it
//! again. Statuses say the same for as long as it is so: nothing may depend on an Event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Api;
use kube::runtime::events::{Event, EventType, Recorder, Reporter as Instance};
use tokio::sync::watch;
use tokio::time::Instant;

use super::presence::{self, AllPresences, HostPresence, HostPresences, PresenceNews};
use crate::configuration::{ControllerSettings, CurrentSettings};
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
/// Time between Events about the hosts of one Gateway. Hosts that are lost meanwhile share the next ones.
const GATHER: Duration = Duration::from_secs(30);
/// Largest number of characters of an Event's text (the API's limit is a kilobyte).
const MAX_NOTE: usize = 900;

/// Warnings about the certificates of each Gateway.
pub(crate) type Expiring = BTreeMap<NamespacedName, Vec<Warning>>;

/// Everything the task of events owns.
pub(crate) struct Events {
    pub(crate) replica: Replica,
    pub(crate) expiring: watch::Receiver<Expiring>,
    pub(crate) presences: watch::Receiver<AllPresences>,
    /// Settings, of which the silence after which a host is lost is told.
    pub(crate) current: watch::Receiver<CurrentSettings>,
}

/// Everything that was told.
#[derive(Default)]
struct Told {
    certificates: BTreeSet<(NamespacedName, Warning)>,
    hosts: AllPresences,
    /// Times at which Events about a Gateway's hosts were written last.
    hosts_at: BTreeMap<NamespacedName, Instant>,
}

impl Events {
    /// Runs until the senders of its channels are gone.
    pub(crate) async fn run(mut self) {
        let mut told = Told::default();
        loop {
            let mut all_told = true;
            if *self.replica.leading.borrow_and_update() {
                let expiring = self.expiring.borrow_and_update().clone();
                let presences = self.presences.borrow_and_update().clone();
                all_told &= self.tell_certificates(&expiring, &mut told).await;
                all_told &= self.tell_hosts(&presences, &mut told).await;
            }
            let changed = tokio::select! {
                changed = self.replica.leading.changed() => changed,
                changed = self.expiring.changed() => changed,
                changed = self.presences.changed() => changed,
                () = tokio::time::sleep(AGAIN), if !all_told => Ok(()),
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Writes the Events about certificates; returns false if some are left.
    async fn tell_certificates(&self, expiring: &Expiring, told: &mut Told) -> bool {
        let is_so = |(gateway, warning): &(NamespacedName, Warning)| {
            let all = expiring.get(gateway);
            all.is_some_and(|all| all.contains(warning))
        };
        told.certificates.retain(is_so);
        for (gateway, warning) in untold(expiring, &told.certificates) {
            if !self.tell(&gateway, &of_certificate(&warning)).await {
                return false;
            }
            told.certificates.insert((gateway, warning));
        }
        true
    }

    /// Writes the Events about hosts; returns false if some are left.
    async fn tell_hosts(&self, presences: &AllPresences, told: &mut Told) -> bool {
        told.hosts
            .retain(|gateway, _| presences.contains_key(gateway));
        told.hosts_at.retain(|_, at| at.elapsed() < GATHER);
        let Ok(host_lost) = self.host_lost() else {
            return true;
        };
        let mut all_told = true;
        for (gateway, now) in presences {
            let known: &mut HostPresences = told.hosts.entry(gateway.clone()).or_default();
            known.retain(|host, _| now.contains_key(host));
            let news = presence::untold(now, known);
            if news.is_empty() {
                continue;
            }
            if told.hosts_at.contains_key(gateway) {
                all_told = false;
                continue;
            }
            for news in &news {
                if !self.tell(gateway, &of_hosts(news, host_lost)).await {
                    return false;
                }
                known.extend(news.hosts.iter().map(|host| (host.clone(), news.presence)));
            }
            told.hosts_at.insert(gateway.clone(), Instant::now());
        }
        all_told
    }

    /// Returns the silence after which a host is lost; an error while there are no settings.
    fn host_lost(&self) -> Result<Duration, String> {
        let current = self.current.borrow();
        let known = current.as_ref();
        known
            .map(|ControllerSettings { host_lost, .. }| *host_lost)
            .map_err(Clone::clone)
    }

    /// Writes an Event; returns false if that has failed.
    async fn tell(&self, gateway: &NamespacedName, event: &Event) -> bool {
        if let Err(error) = self.write(gateway, event).await {
            tracing::warn!(%gateway, %error, "an event cannot be written");
            return false;
        }
        tokio::time::sleep(PACE).await;
        true
    }

    async fn write(&self, gateway: &NamespacedName, event: &Event) -> kube::Result<()> {
        let resource = api_resource(Kind::Gateway, API_VERSION);
        let client = self.replica.client.clone();
        let api: Api<Received> =
            Api::namespaced_with(client.clone(), &gateway.namespace, &resource);
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
        let instance = Instance {
            controller: CONTROLLER.to_owned(),
            instance: Some(self.replica.identity.clone()),
        };
        // A recorder that has written before adds to the Event of the same reason, and keeps its first text.
        Recorder::new(client, instance)
            .publish(event, &regarding)
            .await
    }
}

fn of_certificate(warning: &Warning) -> Event {
    let Warning { message, refused } = warning;
    let reason = if *refused {
        "CertificateNotValid"
    } else {
        "CertificateExpires"
    };
    event(EventType::Warning, reason, "CheckCertificate", message)
}

fn of_hosts(news: &PresenceNews, host_lost: Duration) -> Event {
    let (type_, reason) = match news.presence {
        HostPresence::Lost => (EventType::Warning, "HostLost"),
        HostPresence::Returned => (EventType::Normal, "HostReturned"),
    };
    event(
        type_,
        reason,
        "FollowHosts",
        &news.text(host_lost.as_secs()),
    )
}

fn event(type_: EventType, reason: &str, action: &str, note: &str) -> Event {
    Event {
        type_,
        reason: reason.to_owned(),
        note: Some(note.chars().take(MAX_NOTE).collect()),
        action: action.to_owned(),
        secondary: None,
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
