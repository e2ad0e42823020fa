//! The latest observations of an instance: what Envoy serves, the parts that are left out, and why.

mod deaths;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use sesame_kinds::api::NamespacedName;
use sesame_proto::encoded::EncodedSnapshot;
use tokio::sync::watch;

use self::deaths::DeathCount;
use super::metrics::ApplyCounts;
use super::report::EnvoyReport;
use super::target::Target;
use crate::passwords::PasswordCounts;
use sesame_apply::ApplyReport;
use sesame_apply::quarantine::Affected;
use sesame_envoy::State;
use sesame_proto::rollout::HostTraffic;

/// Envoy's state after an orderly stop.
pub(super) const STOPPED: &str = "Stopped";
/// Reported just before an orderly stop.
pub(super) const STOPPING: &str = "Envoy is being stopped";

const NOT_HOT: &str = "Envoy runs without hot restarts, because /dev/shm was full or not writable when it started, or its directory has a long path (see the log). It is replaced by handovers, which reset its statistics; free some space in /dev/shm or shorten the path, then run `sesame-agent restart`";

pub(super) type AllObserved = BTreeMap<NamespacedName, watch::Receiver<Observed>>;

pub(super) fn newest(all: &watch::Receiver<AllObserved>) -> BTreeMap<NamespacedName, Observed> {
    let all = all.borrow();
    let newest = all
        .iter()
        .map(|(name, one)| (name.clone(), one.borrow().clone()));
    newest.collect()
}

#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// `None` while the instance waits for events.
    pub(super) busy_since: Option<Instant>,
    pub(super) live: bool,
    pub(super) left: bool,
    /// True if Envoy has accepted its listeners and clusters. Until then, it serves nothing.
    pub(super) loaded: bool,
    /// Revision that is stored for the next cold start, or empty.
    pub(super) stored: String,
    /// Why the accepted state could not be stored.
    pub(super) unkept: Option<String>,
    /// Why configured access logs cannot be written.
    pub(super) unlogged: Option<String>,
    /// Why an outdated Envoy was not replaced.
    pub(super) outdated: Option<String>,
    pub(super) held: Option<String>,
    /// Why the newest revision waits for its rollout. The host serves as intended.
    pub(super) waiting: Option<String>,
    /// Traffic in the last interval, while a rollout compares hosts.
    pub(super) traffic: Option<HostTraffic>,
    pub(super) death_count: DeathCount,
    /// Progress of the current drain.
    pub(super) draining: Option<String>,
    /// The field `serves` is not set here, because it follows from the other fields.
    pub(super) envoy: EnvoyReport,
    /// The target that Envoy accepted last, possibly reduced.
    pub(super) applied: Option<Arc<Target>>,
    /// `applied` before its reduction.
    pub(super) applied_for: Option<Arc<Target>>,
    pub(super) applied_at: Option<Timestamp>,
    pub(super) affected: Arc<Affected>,
    /// Listeners that do not present one of their certificates, with the handshake results.
    pub(super) unshown: BTreeMap<String, String>,
    /// Listeners with certificates that no file on this host provides.
    pub(super) without_files: BTreeMap<String, String>,
    /// Listeners in `without_files` that are closed.
    pub(super) without_certificate: BTreeSet<String>,
    /// Reasons for rejecting the newest target as a whole.
    pub(super) refusal: Vec<String>,
    /// Why the newest target could not be applied.
    pub(super) trouble: Option<String>,
    /// Why Envoy watches fewer files than it should.
    pub(super) scarcity: Option<String>,
    pub(super) not_hot: Option<&'static str>,
    /// Descriptions of the parts that are left out.
    pub(super) notes: Vec<String>,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) counts: ApplyCounts,
    pub(super) passwords: Arc<PasswordCounts>,
    /// Requested addresses that this host does not have.
    pub(super) unusable_addresses: BTreeMap<String, String>,
}

impl Observed {
    /// Returns an empty string if Envoy has not accepted a revision yet.
    pub(super) fn applied_revision(&self) -> &str {
        self.applied.as_ref().map_or("", |wanted| wanted.revision())
    }

    /// Unlike [`Self::applied_revision`], ignores whether the target was reduced.
    pub(super) fn answered_revision(&self) -> &str {
        self.applied_for
            .as_ref()
            .map_or("", |wanted| wanted.revision())
    }

    pub(super) fn all_unshown(&self) -> BTreeMap<String, String> {
        let mut all = self.unshown.clone();
        all.extend(self.without_files.clone());
        all
    }

    /// Includes listeners without a certificate.
    pub(super) fn all_refused(&self) -> BTreeMap<String, String> {
        let mut all = self.without_files.clone();
        all.retain(|listener, _| self.without_certificate.contains(listener));
        all.extend(self.affected.listeners.clone());
        all
    }

    /// Also returns true if no address could be assigned.
    pub(super) fn leaves_out(&self) -> bool {
        let problems = |wanted: &Arc<Target>| !wanted.rendered.problems.is_empty();
        self.addresses.is_empty() || self.applied_for.as_ref().is_some_and(problems)
    }

    pub(super) fn why_not_running(&self) -> &'static str {
        if self.envoy.state == STOPPED {
            "the agent was stopped"
        } else {
            "Envoy is not running yet"
        }
    }

    pub(super) fn is_in_trouble(&self) -> bool {
        !self.refusal.is_empty() || self.trouble.is_some()
    }

    pub(super) fn trouble_or(&self, otherwise: &str) -> String {
        self.trouble.clone().unwrap_or_else(|| otherwise.to_owned())
    }

    pub(super) fn record_state(&mut self, state: &State) {
        self.live = state.is_live();
        self.loaded = matches!(state, State::Live { loaded: true, .. });
        self.not_hot = match state {
            State::Live {
                hot_restart: false, ..
            } => Some(NOT_HOT),
            _ => None,
        };
        self.trouble = None;
        let (words, pid) = match state {
            State::Starting { pid } => ("Starting", pid.unwrap_or(0)),
            State::Live { pid, .. } => ("Live", *pid),
            State::Backoff { deaths, reason } => {
                self.trouble = Some(match deaths {
                    0 => format!("Envoy is not started: {reason}"),
                    _ => format!("Envoy died {deaths} times in a row: {reason}"),
                });
                ("Backoff", 0)
            }
            State::Stopping { pid } => ("Stopping", *pid),
            State::Stopped => (STOPPED, 0),
        };
        words.clone_into(&mut self.envoy.state);
        self.envoy.pid = pid;
    }

    /// `served` is `wanted` or its reduced form.
    pub(super) fn record_accepted(
        &mut self,
        wanted: &Arc<Target>,
        served: &Arc<Target>,
        affected: Affected,
        report: &ApplyReport,
    ) {
        let same = self
            .applied
            .as_ref()
            .is_some_and(|applied| Arc::ptr_eq(applied, served));
        if !same {
            self.applied_at = Some(Timestamp::now());
        }
        let differs = |before: &Arc<Target>| before.staged_digest() != wanted.staged_digest();
        if self.death_count.is_active() && self.applied_for.as_ref().is_none_or(differs) {
            self.death_count.restart(self.counts.deaths());
        }
        self.applied = Some(Arc::clone(served));
        self.applied_for = Some(Arc::clone(wanted));
        self.affected = Arc::new(affected);
        self.refusal.clear();
        self.trouble = None;
        self.addresses.clone_from(&wanted.assignment.addresses);
        self.notes.clone_from(&wanted.assignment.problems);
        self.notes
            .extend(wanted.rendered.problems.iter().map(ToString::to_string));
        self.notes
            .extend(sesame_render::scarcity(&wanted.rendered.shares));
        self.notes.extend(
            report
                .still_warming
                .iter()
                .map(|cluster| format!("cluster {cluster} is still warming")),
        );
        (self.without_files, self.without_certificate) = without_files(&wanted.encoded);
        self.unusable_addresses = wanted
            .encoded
            .rest()
            .addresses
            .iter()
            .filter(|asked| !self.addresses.iter().any(|ip| ip.to_string() == **asked))
            .map(|asked| {
                (
                    asked.clone(),
                    "this host does not have this address".to_owned(),
                )
            })
            .collect();
    }
}

/// The second value contains only listeners without any other certificate.
fn without_files(encoded: &EncodedSnapshot) -> (BTreeMap<String, String>, BTreeSet<String>) {
    let (mut described, mut bare) = (BTreeMap::new(), BTreeSet::new());
    let missing = encoded.missing_on_host();
    if missing.is_empty() {
        return (described, bare);
    }
    for listener in encoded.rest().ports.iter().flat_map(|port| &port.listeners) {
        let keys = listener.tls.as_ref().map_or(&[][..], |tls| &tls.keys);
        let lacking = keys.iter().filter(|key| missing.contains(key));
        let lacking: Vec<&str> = lacking.map(String::as_str).collect();
        if lacking.is_empty() {
            continue;
        }
        if lacking.len() == keys.len() {
            bare.insert(listener.name.clone());
        }
        let why = format!(
            "no local-certificate of this host provides {}",
            lacking.join(", ")
        );
        described.insert(listener.name.clone(), why);
    }
    (described, bare)
}

#[cfg(test)]
mod tests {
    use sesame_proto::keys::KeyPair;
    use sesame_proto::schema::{KeyRef, Listener, Port, Snapshot, TlsTermination};

    use super::*;

    #[test]
    fn listener_opens_when_one_of_its_certificates_exists() {
        let listener = |name: &str, keys: &[&str]| Listener {
            name: name.to_owned(),
            tls: Some(TlsTermination {
                keys: keys.iter().map(|key| (*key).to_owned()).collect(),
                ..TlsTermination::default()
            }),
            ..Listener::default()
        };
        let key = |name: &str, on_host| KeyRef {
            name: name.to_owned(),
            on_host,
            ..KeyRef::default()
        };
        let snapshot = Snapshot {
            ports: vec![Port {
                listeners: vec![
                    listener("both", &["here", "away"]),
                    listener("none", &["away"]),
                    listener("all", &["here"]),
                ],
                ..Port::default()
            }],
            keys: vec![key("here", false), key("away", true)],
            ..Snapshot::default()
        };
        let here = KeyPair {
            name: "here".to_owned(),
            ..KeyPair::default()
        };
        let encoded = EncodedSnapshot::new(&snapshot, vec![here]);
        let (without_files, without_certificate) = without_files(&encoded);
        let observed = Observed {
            without_files,
            without_certificate,
            ..Observed::default()
        };
        let names = |all: BTreeMap<String, String>| all.into_keys().collect::<Vec<_>>();
        assert_eq!(names(observed.all_unshown()), ["both", "none"]);
        assert_eq!(names(observed.all_refused()), ["none"]);
    }
}
