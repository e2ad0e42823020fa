//! What an instance has observed, newest only: what is served, what is left out of it, and why.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;

use super::target::Target;
use crate::apply::Report;
use crate::envoy::State;
use crate::quarantine::Affected;

/// Envoy's state after an orderly end.
pub(super) const STOPPED: &str = "Stopped";

/// What an instance has observed.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// Whether Envoy serves.
    pub(super) live: bool,
    /// Whether the agent has left it to itself.
    pub(super) left: bool,
    /// Whether it has taken listeners and clusters; else it serves nothing.
    pub(super) loaded: bool,
    /// Why what is served could not be kept for the next start, if it could not.
    pub(super) unkept: Option<String>,
    /// Why Envoy is still one that was to be replaced, if it is.
    pub(super) outdated: Option<String>,
    /// Why what the source wants is not even tried, if it is not.
    pub(super) held: Option<String>,
    /// How far it is drained, if it is to be.
    pub(super) draining: Option<String>,
    /// Envoy's state in words.
    pub(super) envoy_state: String,
    /// Its process; 0 when there is none.
    pub(super) envoy_pid: u32,
    /// Its version.
    pub(super) envoy_version: String,
    /// Its admin socket.
    pub(super) admin: PathBuf,
    /// What it accepted last.
    pub(super) applied: Option<Arc<Target>>,
    /// What that is all of, or what is left of it.
    pub(super) applied_for: Option<Arc<Target>>,
    /// When.
    pub(super) applied_at: Option<Timestamp>,
    /// What of it Envoy refuses, and whom that concerns.
    pub(super) affected: Arc<Affected>,
    /// Why what is wanted now was refused as a whole, in Envoy's words.
    pub(super) refusal: Vec<String>,
    /// Why what is wanted is not served, if it is not because of a refusal.
    pub(super) trouble: Option<String>,
    /// What is left out of what is served.
    pub(super) notes: Vec<String>,
    /// Where it listens.
    pub(super) addresses: Vec<IpAddr>,
    /// Addresses asked for that this host does not have.
    pub(super) unusable_addresses: BTreeMap<String, String>,
}

impl Observed {
    /// The accepted revision; empty when there is none.
    pub(super) fn applied_revision(&self) -> &str {
        self.applied.as_ref().map_or("", |wanted| wanted.revision())
    }

    /// The wanted revision that is served, as far as Envoy accepts it; empty when there is none.
    pub(super) fn answered_revision(&self) -> &str {
        self.applied_for
            .as_ref()
            .map_or("", |wanted| wanted.revision())
    }

    /// Whether something of what is wanted could not be said to Envoy at all, or nobody can reach it.
    pub(super) fn leaves_out(&self) -> bool {
        let problems = |wanted: &Arc<Target>| !wanted.rendered.problems.is_empty();
        self.addresses.is_empty() || self.applied_for.as_ref().is_some_and(problems)
    }

    /// Why there is no Envoy, when there is nothing wrong with it.
    pub(super) fn why_not_running(&self) -> &'static str {
        if self.envoy_state == STOPPED {
            "the agent was stopped"
        } else {
            "Envoy is not running yet"
        }
    }

    /// What is wrong, or `otherwise`.
    pub(super) fn trouble_or(&self, otherwise: &str) -> String {
        self.trouble.clone().unwrap_or_else(|| otherwise.to_owned())
    }

    /// Takes note of Envoy's state.
    pub(super) fn note_state(&mut self, state: &State) {
        self.live = state.is_live();
        self.loaded = matches!(state, State::Live { loaded: true, .. });
        self.envoy_pid = 0;
        let (words, trouble) = match state {
            State::Starting { pid } => {
                self.envoy_pid = pid.unwrap_or(0);
                ("Starting", None)
            }
            State::Live { pid, .. } => {
                self.envoy_pid = *pid;
                ("Live", None)
            }
            State::Backoff { deaths, reason, .. } => (
                "Backoff",
                Some(format!("Envoy died {deaths} times in a row: {reason}")),
            ),
            State::Stopping { pid } => {
                self.envoy_pid = *pid;
                ("Stopping", None)
            }
            State::Stopped => (STOPPED, None),
        };
        words.clone_into(&mut self.envoy_state);
        self.trouble = trouble;
    }

    /// Takes note of what Envoy accepted: `served`, which is `wanted` or what is left of it.
    pub(super) fn note_accepted(
        &mut self,
        wanted: &Arc<Target>,
        served: &Arc<Target>,
        affected: Affected,
        report: &Report,
    ) {
        let same = self
            .applied
            .as_ref()
            .is_some_and(|applied| Arc::ptr_eq(applied, served));
        if !same {
            self.applied_at = Some(Timestamp::now());
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
        let backends = wanted.rendered.clusters.len();
        self.notes.extend(wanted.options.limits.scarcity(backends));
        self.notes.extend(
            report
                .still_warming
                .iter()
                .map(|cluster| format!("cluster {cluster} is still warming")),
        );
        self.unusable_addresses = wanted
            .packed
            .addresses()
            .iter()
            .filter(|asked| {
                !wanted
                    .assignment
                    .addresses
                    .iter()
                    .any(|ip| ip.to_string() == **asked)
            })
            .map(|asked| (asked.clone(), "this host does not offer it".to_owned()))
            .collect();
    }
}
