//! Writes Events about conditions, hosts and certificates. The leader writes each Event once.
//! Nothing may depend on Events: statuses contain the same information.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Api;
use kube::runtime::events::{Event, EventType, Recorder, Reporter as Instance};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::presence::{self, AllPresences, HostPresence, HostPresences, PresenceNews};
use super::transitions::{ObjectTransitions, Transition};
use crate::configuration::{ControllerSettings, CurrentSettings};
use crate::replica::Replica;
use crate::watch::{Received, api_resource};
use sesame_acme_client::AcmeState;
use sesame_kinds::api::{CONTROLLER_NAME, NamespacedName};
use sesame_kinds::expiry::Warning;
use sesame_kinds::world::{Kind, ObjectKey};
use sesame_resolver::UncoveredHostname;

const API_VERSION: &str = "gateway.networking.k8s.io/v1";
/// Minimum interval between Events, because a thousand certificates can expire on the same day.
const PACE: Duration = Duration::from_millis(100);
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Minimum interval between a Gateway's host Events. Hosts lost during this interval share the next
/// Event.
const HOST_EVENT_INTERVAL: Duration = Duration::from_secs(30);
/// Minimum interval between repeated Events, because changes to other objects can make conditions
/// flap.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
pub(crate) const MAX_UNREPORTED: usize = 1000;
/// Maximum length of a note in characters. The API's limit is a kilobyte.
const MAX_NOTE: usize = 900;

pub(crate) type CertificateWarnings = BTreeMap<ObjectKey, Vec<CertificateWarning>>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CertificateWarning {
    reason: &'static str,
    message: String,
}

impl From<Warning> for CertificateWarning {
    fn from(Warning { message, refused }: Warning) -> Self {
        let reason = if refused {
            "CertificateNotValid"
        } else {
            "CertificateExpires"
        };
        Self { reason, message }
    }
}

impl From<&UncoveredHostname> for CertificateWarning {
    fn from(uncovered: &UncoveredHostname) -> Self {
        Self {
            reason: "HostnameNotCovered",
            message: format!("listener {:?}: {uncovered}", uncovered.listener),
        }
    }
}

fn add_orders(orders: &AcmeState, warnings: &mut CertificateWarnings) {
    for certificate in orders.certificates.values() {
        let Some(message) = &certificate.problem else {
            continue;
        };
        for requester in &certificate.requesters {
            let warnings = warnings.entry(requester.clone()).or_default();
            warnings.push(CertificateWarning {
                reason: "CertificateNotOrdered",
                message: message.clone(),
            });
        }
    }
}

pub(crate) struct Events {
    pub(crate) replica: Replica,
    pub(crate) warnings: watch::Receiver<CertificateWarnings>,
    pub(crate) orders: watch::Receiver<Arc<AcmeState>>,
    pub(crate) presences: watch::Receiver<AllPresences>,
    pub(crate) transitions: mpsc::Receiver<ObjectTransitions>,
    pub(crate) current: watch::Receiver<CurrentSettings>,
}

#[derive(Default)]
struct EventHistory {
    certificates: BTreeSet<(ObjectKey, CertificateWarning)>,
    hosts: AllPresences,
    hosts_at: BTreeMap<NamespacedName, Instant>,
    /// When each condition was last reported, by object, affected part and reason.
    conditions_at: BTreeMap<(ObjectKey, String, String), Instant>,
}

impl Events {
    pub(crate) async fn run(mut self) {
        let mut history = EventHistory::default();
        loop {
            let mut is_complete = true;
            // A former leader orders nothing, so its metrics must not show its last certificates.
            let orders = self.orders.borrow_and_update().clone();
            self.replica.metrics.orders(&orders);
            if *self.replica.leading.borrow_and_update() {
                let mut warnings = self.warnings.borrow_and_update().clone();
                add_orders(&orders, &mut warnings);
                let presences = self.presences.borrow_and_update().clone();
                is_complete &= self.report_certificates(&warnings, &mut history).await;
                is_complete &= self.report_hosts(&presences, &mut history).await;
            }
            let changed = tokio::select! {
                changed = self.replica.leading.changed() => changed,
                changed = self.warnings.changed() => changed,
                changed = self.orders.changed() => changed,
                changed = self.presences.changed() => changed,
                Some(turned) = self.transitions.recv() => {
                    self.report_transitions(turned, &mut history).await;
                    Ok(())
                }
                () = tokio::time::sleep(RETRY_INTERVAL), if !is_complete => Ok(()),
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Drops Events that cannot be written.
    async fn report_transitions(&self, turned: ObjectTransitions, history: &mut EventHistory) {
        let ObjectTransitions {
            key,
            api_version,
            all,
        } = turned;
        history
            .conditions_at
            .retain(|_, at| at.elapsed() < REPEAT_INTERVAL);
        for transition in all {
            let of = (
                key.clone(),
                transition.about.clone(),
                transition.reason.clone(),
            );
            if !*self.replica.leading.borrow() || history.conditions_at.contains_key(&of) {
                continue;
            }
            self.report(&key, &api_version, &condition_event(&transition))
                .await;
            history.conditions_at.insert(of, Instant::now());
        }
    }

    /// Returns false if some Events were not written.
    async fn report_certificates(
        &self,
        warnings: &CertificateWarnings,
        history: &mut EventHistory,
    ) -> bool {
        let is_so = |(object, warning): &(ObjectKey, CertificateWarning)| {
            let all = warnings.get(object);
            all.is_some_and(|all| all.contains(warning))
        };
        history.certificates.retain(is_so);
        let mut is_complete = true;
        for (object, warning) in unreported(warnings, &history.certificates) {
            let event = certificate_event(&warning);
            // One object whose Events are rejected must not hide the others' warnings.
            if self.report(&object, API_VERSION, &event).await {
                history.certificates.insert((object, warning));
            } else {
                is_complete = false;
            }
        }
        is_complete
    }

    /// Returns false if some Events were not written.
    async fn report_hosts(&self, presences: &AllPresences, history: &mut EventHistory) -> bool {
        history
            .hosts
            .retain(|gateway, _| presences.contains_key(gateway));
        history
            .hosts_at
            .retain(|_, at| at.elapsed() < HOST_EVENT_INTERVAL);
        let Ok(host_lost) = self.host_lost() else {
            return true;
        };
        let mut is_complete = true;
        for (gateway, now) in presences {
            let known: &mut HostPresences = history.hosts.entry(gateway.clone()).or_default();
            known.retain(|host, _| now.contains_key(host));
            let news = presence::unreported(now, known);
            if news.is_empty() {
                continue;
            }
            if history.hosts_at.contains_key(gateway) {
                is_complete = false;
                continue;
            }
            for news in &news {
                let event = hosts_event(news, host_lost);
                if !self.report_for_gateway(gateway, &event).await {
                    return false;
                }
                known.extend(news.hosts.iter().map(|host| (host.clone(), news.presence)));
            }
            history.hosts_at.insert(gateway.clone(), Instant::now());
        }
        is_complete
    }

    /// Returns an error until valid settings arrive.
    fn host_lost(&self) -> Result<Duration, String> {
        let current = self.current.borrow();
        let known = current.as_ref();
        known
            .map(|ControllerSettings { host_lost, .. }| *host_lost)
            .map_err(Clone::clone)
    }

    /// Returns false if the write failed.
    async fn report_for_gateway(&self, gateway: &NamespacedName, event: &Event) -> bool {
        let key = ObjectKey {
            kind: Kind::Gateway,
            name: gateway.clone(),
        };
        self.report(&key, API_VERSION, event).await
    }

    /// Returns false if the write failed.
    async fn report(&self, key: &ObjectKey, api_version: &str, event: &Event) -> bool {
        if let Err(error) = self.write(key, api_version, event).await {
            tracing::warn!(object = %key, %error, "cannot write an Event");
            return false;
        }
        tokio::time::sleep(PACE).await;
        true
    }

    async fn write(&self, key: &ObjectKey, api_version: &str, event: &Event) -> kube::Result<()> {
        let resource = api_resource(key.kind, api_version);
        let client = self.replica.client.clone();
        let ObjectKey { kind, name } = key;
        let api: Api<Received> = if kind.cluster_scoped() {
            Api::all_with(client.clone(), &resource)
        } else {
            Api::namespaced_with(client.clone(), &name.namespace, &resource)
        };
        let Some(found) = api.get_metadata_opt(&name.name).await? else {
            // The object no longer exists.
            return Ok(());
        };
        let regarding = ObjectReference {
            api_version: Some(api_version.to_owned()),
            kind: Some(kind.as_str().to_owned()),
            namespace: (!kind.cluster_scoped()).then(|| name.namespace.clone()),
            name: Some(name.name.clone()),
            uid: found.metadata.uid,
            ..ObjectReference::default()
        };
        let instance = Instance {
            controller: CONTROLLER_NAME.to_owned(),
            // The API server rejects longer ones.
            instance: Some(self.replica.identity.chars().take(128).collect()),
        };
        // A reused recorder would count an Event with the same reason as a repetition, and drop its
        // note.
        Recorder::new(client, instance)
            .publish(event, &regarding)
            .await
    }
}

fn condition_event(transition: &Transition) -> Event {
    let Transition {
        is_bad,
        reason,
        about,
        message,
    } = transition;
    let type_ = if *is_bad {
        EventType::Warning
    } else {
        EventType::Normal
    };
    let note = match about.as_str() {
        "" => message.clone(),
        about => format!("{about}: {message}"),
    };
    event(type_, reason, "WriteStatus", &note)
}

fn certificate_event(warning: &CertificateWarning) -> Event {
    let CertificateWarning { reason, message } = warning;
    event(EventType::Warning, reason, "CheckCertificate", message)
}

fn hosts_event(news: &PresenceNews, host_lost: Duration) -> Event {
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

fn unreported(
    warnings: &CertificateWarnings,
    history: &BTreeSet<(ObjectKey, CertificateWarning)>,
) -> Vec<(ObjectKey, CertificateWarning)> {
    let all = warnings.iter().flat_map(|(object, warnings)| {
        let with_object = |warning: &CertificateWarning| (object.clone(), warning.clone());
        warnings.iter().map(with_object)
    });
    all.filter(|one| !history.contains(one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_warning_is_not_reported_again() {
        let warning = |message: &str| {
            CertificateWarning::from(Warning {
                message: message.to_owned(),
                refused: false,
            })
        };
        let gateway = Kind::Gateway.named(NamespacedName::new("default", "edge"));
        let all = vec![warning("a"), warning("b")];
        let warnings = CertificateWarnings::from([(gateway.clone(), all)]);
        let history = BTreeSet::from([(gateway.clone(), warning("a"))]);
        assert_eq!(unreported(&warnings, &history), [(gateway, warning("b"))]);
    }
}
