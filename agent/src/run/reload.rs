//! Rereads settings while the agent runs, on SIGHUP or `POST /reload`.
//!
//! A few settings take effect immediately. The others need a restart of the agent, during which
//! Envoy keeps serving. The response, the log and `status` list the settings that need a restart.
//! Invalid settings change nothing.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot, watch};

use super::{OnStop, RunOptions};
use crate::host::service_manager;

/// Names of the settings that take effect without a restart of the agent.
pub const LIVE: [&str; 9] = [
    "bundle-overlap-seconds",
    "lame-duck-seconds",
    "log",
    "max-apply-share",
    "max-removal-share",
    "on-stop",
    "removal-hold-seconds",
    "report-address",
    "report-seconds",
];

/// Origin of a setting's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "from")]
pub enum SettingOrigin {
    /// The command line.
    Flag,
    /// An environment variable.
    Environment {
        /// Name of the variable.
        variable: String,
    },
    /// The settings file.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Line number of the key, starting at 1.
        line: u64,
    },
    /// The default; the setting is unset.
    Default,
}

/// One setting in effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Setting {
    /// Name of the option, without its dashes.
    pub key: String,
    /// Values; empty if it is unset and has no default.
    pub values: Vec<String>,
    /// Origin of the values.
    pub origin: SettingOrigin,
}

/// All settings, as read at one moment.
#[derive(Clone, Debug)]
pub struct SettingsReading {
    /// Options built from the settings.
    pub options: RunOptions,
    /// Settings by name.
    pub settings: Vec<Setting>,
}

/// Reads the current settings, and changes the log filter. The implementation knows the command
/// line, unlike this module.
pub trait ReadSettings: Send + Sync {
    /// Reads the settings, or returns an error that lists all problems with them.
    fn read(&self) -> Result<SettingsReading, String>;
    /// Changes the log filter.
    fn set_log(&self, filter: &str) -> Result<(), String>;
}

/// Outcome of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reloaded {
    /// Settings that have changed and are in effect.
    pub applied: Vec<String>,
    /// Settings that take effect when the agent is restarted.
    pub needs_restart: Vec<String>,
}

/// Settings that are in effect, and the state of the others.
#[derive(Clone, Debug)]
pub(super) struct LiveSettings {
    /// What happens to Envoys when a signal stops the agent.
    pub(super) on_stop: OnStop,
    /// Time between becoming unready and the drain that `on_stop` requests.
    pub(super) lame_duck: Duration,
    /// Maximum percentage of time that an Envoy's main thread spends on frequent changes.
    pub(super) apply_share: u8,
    /// Percentage of the served configuration that a revision may remove without being held.
    pub(super) most_removed: u8,
    /// Time for which a revision that removes more than `most_removed` is held.
    pub(super) hold: Duration,
    /// Time that a CA certificate stays trusted after a rotation removed it from its bundle; `None`
    /// if the configuration decides.
    pub(super) bundle_overlap: Option<Duration>,
    /// Addresses where clients reach the host.
    pub(super) report_addresses: Vec<IpAddr>,
    /// Time between reports to a cluster while nothing changes.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(dead_code, reason = "reports are for clusters")
    )]
    pub(super) report_every: Duration,
    /// All settings from the last successful read.
    pub(super) settings: Arc<Vec<Setting>>,
    /// Settings that take effect when the agent is restarted.
    pub(super) needs_restart: Vec<String>,
    /// Why the last reload was rejected.
    pub(super) refused: Option<String>,
}

impl LiveSettings {
    pub(super) fn new(reading: &SettingsReading) -> Self {
        let SettingsReading { options, settings } = reading;
        Self {
            on_stop: options.on_stop,
            lame_duck: options.lame_duck,
            apply_share: options.apply_share,
            most_removed: options.most_removed,
            hold: options.hold,
            bundle_overlap: options.bundle_overlap,
            report_addresses: options.report_addresses.clone(),
            report_every: options.report_every,
            settings: Arc::new(settings.clone()),
            needs_restart: Vec::new(),
            refused: None,
        }
    }

    /// Returns how long a withdrawal is held, or `None` if withdrawals are not held.
    pub(super) fn patience(&self) -> Option<Duration> {
        (self.most_removed < 100).then_some(self.hold)
    }

    /// Returns hints about settings that need a restart.
    pub(super) fn hints(&self) -> Vec<String> {
        let keys = &self.needs_restart;
        let waits = (!keys.is_empty()).then(|| waits_for_restart(keys));
        waits.into_iter().collect()
    }

    /// Returns warnings about problems that the agent would have at its next start.
    pub(super) fn warnings(&self) -> Vec<String> {
        let refused = self.refused.iter();
        refused
            .map(|why| {
                format!(
                    "the settings were rejected, and the agent could not start with them: {why}"
                )
            })
            .collect()
    }
}

fn waits_for_restart(keys: &[String]) -> String {
    format!(
        "changed settings take effect once the agent is restarted, while Envoy keeps serving: {}",
        keys.join(", ")
    )
}

/// Channel that returns the outcome of a reload to its caller.
pub(super) type ReloadRequest = oneshot::Sender<Result<Reloaded, String>>;

/// The task that rereads settings.
pub(super) struct Reloader {
    reader: Arc<dyn ReadSettings>,
    started: Vec<Setting>,
    live: watch::Sender<LiveSettings>,
    ready: watch::Receiver<bool>,
}

impl Reloader {
    /// Creates the task for an agent that was `started` with these settings. `ready` is true once
    /// the service manager considers the agent started. Before that, a reload must not report
    /// readiness.
    pub(super) fn new(
        reader: Arc<dyn ReadSettings>,
        started: Vec<Setting>,
        live: watch::Sender<LiveSettings>,
        ready: watch::Receiver<bool>,
    ) -> Self {
        Self {
            reader,
            started,
            live,
            ready,
        }
    }

    /// Reloads on each SIGHUP and each request, one at a time.
    pub(super) async fn serve(
        self,
        mut hangups: Signal,
        mut requests: mpsc::Receiver<ReloadRequest>,
    ) {
        loop {
            let caller = tokio::select! {
                _ = hangups.recv() => None,
                Some(caller) = requests.recv() => Some(caller),
            };
            let tells = *self.ready.borrow();
            if tells {
                service_manager::reloading();
            }
            let outcome = self.reload().await;
            if tells {
                service_manager::reloaded();
            }
            if let Some(caller) = caller {
                // The caller may no longer be waiting.
                let _ = caller.send(outcome);
            }
        }
    }

    async fn reload(&self) -> Result<Reloaded, String> {
        let reader = Arc::clone(&self.reader);
        let read = tokio::task::spawn_blocking(move || reader.read()).await;
        let reading = read.unwrap_or_else(|error| Err(error.to_string()));
        let outcome =
            reading.and_then(|reading| take(&*self.reader, &self.started, &self.live, &reading));
        match &outcome {
            Ok(Reloaded {
                applied,
                needs_restart,
            }) => {
                tracing::info!(applied = applied.join(", "), "reloaded the settings");
                if !needs_restart.is_empty() {
                    tracing::warn!("{}", waits_for_restart(needs_restart));
                }
            }
            Err(why) => {
                tracing::error!("the settings are unchanged: {why}");
                let refused = Some(why.clone());
                self.live.send_modify(|live| live.refused = refused);
            }
        }
        outcome
    }
}

/// Applies the settings that can change while the agent is running.
fn take(
    reader: &dyn ReadSettings,
    started: &[Setting],
    live: &watch::Sender<LiveSettings>,
    reading: &SettingsReading,
) -> Result<Reloaded, String> {
    let before = Arc::clone(&live.borrow().settings);
    let reloaded = compare(started, &before, &reading.settings);
    if reloaded.applied.iter().any(|key| key == "log")
        && let Some(log) = reading.settings.iter().find(|one| one.key == "log")
    {
        reader.set_log(&log.values.join(","))?;
    }
    live.send_replace(LiveSettings {
        needs_restart: reloaded.needs_restart.clone(),
        ..LiveSettings::new(reading)
    });
    Ok(reloaded)
}

/// Returns the settings that differ from `before` and take effect immediately, and the settings
/// that differ from `started` and need a restart. Pure.
fn compare(started: &[Setting], before: &[Setting], now: &[Setting]) -> Reloaded {
    let is_live = |key: &&str| LIVE.contains(key);
    let (applied, _) = differences(before, now)
        .into_iter()
        .partition::<Vec<_>, _>(is_live);
    let (_, waiting) = differences(started, now)
        .into_iter()
        .partition::<Vec<_>, _>(is_live);
    let owned = |keys: Vec<&str>| keys.into_iter().map(str::to_owned).collect();
    Reloaded {
        applied: owned(applied),
        needs_restart: owned(waiting),
    }
}

/// Returns the names of the settings whose values differ, in order.
fn differences<'a>(one: &'a [Setting], other: &'a [Setting]) -> BTreeSet<&'a str> {
    let values = |settings: &'a [Setting], key: &str| {
        let found = settings.iter().find(|setting| setting.key == key);
        found.map(|setting| setting.values.as_slice())
    };
    let keys = one.iter().chain(other).map(|setting| setting.key.as_str());
    keys.filter(|key| values(one, key) != values(other, key))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Vec<Setting> {
        let setting = |(key, value): &(&str, &str)| Setting {
            key: (*key).to_owned(),
            values: vec![(*value).to_owned()],
            origin: SettingOrigin::Default,
        };
        pairs.iter().map(setting).collect()
    }

    #[test]
    fn reload_applies_changeable_settings_and_defers_others() {
        let started = settings(&[
            ("log", "info"),
            ("port-map", "80:8080"),
            ("on-stop", "leave"),
        ]);
        let first = settings(&[
            ("log", "debug"),
            ("port-map", "80:8081"),
            ("on-stop", "leave"),
        ]);
        let reloaded = compare(&started, &started, &first);
        assert_eq!(reloaded.applied, ["log"]);
        assert_eq!(reloaded.needs_restart, ["port-map"]);
        // Nothing is new, but the restart is still pending.
        let again = compare(&started, &first, &first);
        assert_eq!(again.applied, [""; 0]);
        assert_eq!(again.needs_restart, ["port-map"]);
        let back = compare(&started, &first, &started);
        assert_eq!(back.applied, ["log"]);
        assert_eq!(back.needs_restart, [""; 0]);
    }
}
