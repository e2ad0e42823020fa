//! Rereads settings while the agent runs, on SIGHUP or `POST /reload`. If any setting is invalid,
//! no setting changes. Most settings require a restart of the agent, during which Envoy keeps
//! serving.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot, watch};

use super::{OnStop, RunOptions};
use sesame_host::service_manager;

/// Names of the settings that take effect immediately.
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

/// Where a setting's value comes from.
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
    /// The setting is unset.
    Default,
}

/// A setting that is in effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Setting {
    /// Name of the option, without leading dashes.
    pub key: String,
    /// Empty if the setting is unset and has no default.
    pub values: Vec<String>,
    /// Where the values come from.
    pub origin: SettingOrigin,
}

/// All settings from one read.
#[derive(Clone, Debug)]
pub struct SettingsReading {
    /// The options that result from the settings.
    pub options: RunOptions,
    /// The settings, sorted by name.
    pub settings: Vec<Setting>,
}

/// Reads the current settings, and changes the log filter. Only the implementation knows the
/// command line.
pub trait ReadSettings: Send + Sync {
    /// Reads the settings, or returns an error that lists all problems with them.
    fn read(&self) -> Result<SettingsReading, String>;
    /// Changes the log filter.
    fn set_log(&self, filter: &str) -> Result<(), String>;
}

/// The outcome of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reloaded {
    /// Settings that have changed and are now in effect.
    pub applied: Vec<String>,
    /// Changed settings that take effect when the agent is restarted.
    pub needs_restart: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct LiveSettings {
    pub(super) on_stop: OnStop,
    pub(super) lame_duck: Duration,
    pub(super) apply_share: u8,
    pub(super) most_removed: u8,
    pub(super) hold: Duration,
    pub(super) bundle_overlap: Option<Duration>,
    pub(super) report_addresses: Vec<IpAddr>,
    #[cfg_attr(
        not(feature = "cluster"),
        expect(dead_code, reason = "reports are for clusters")
    )]
    pub(super) report_every: Duration,
    /// From the last successful read.
    pub(super) settings: Arc<Vec<Setting>>,
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

    /// Returns `None` if withdrawals are not held.
    pub(super) fn patience(&self) -> Option<Duration> {
        (self.most_removed < 100).then_some(self.hold)
    }

    pub(super) fn hints(&self) -> Vec<String> {
        let keys = &self.needs_restart;
        let waits = (!keys.is_empty()).then(|| waits_for_restart(keys));
        waits.into_iter().collect()
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let refused = self.refused.iter();
        refused
            .map(|why| {
                format!("the settings were rejected; the agent would not start with them: {why}")
            })
            .collect()
    }
}

fn waits_for_restart(keys: &[String]) -> String {
    format!(
        "changed settings take effect after the agent restarts (Envoy keeps serving): {}",
        keys.join(", ")
    )
}

pub(super) type ReloadRequest = oneshot::Sender<Result<Reloaded, String>>;

pub(super) struct Reloader {
    reader: Arc<dyn ReadSettings>,
    started: Vec<Setting>,
    live: watch::Sender<LiveSettings>,
    ready: watch::Receiver<bool>,
}

impl Reloader {
    /// Until `ready` becomes true, a reload must not report readiness.
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

    /// Runs one reload at a time.
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
            let notifies = *self.ready.borrow();
            if notifies {
                service_manager::reloading();
            }
            let outcome = self.reload().await;
            if notifies {
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
        let outcome = reading
            .and_then(|reading| apply_settings(&*self.reader, &self.started, &self.live, &reading));
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

fn apply_settings(
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

/// Live settings are compared with `before`, and all others with `started`.
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
        // A restart is still pending.
        let again = compare(&started, &first, &first);
        assert_eq!(again.applied, [""; 0]);
        assert_eq!(again.needs_restart, ["port-map"]);
        let back = compare(&started, &first, &started);
        assert_eq!(back.applied, ["log"]);
        assert_eq!(back.needs_restart, [""; 0]);
    }
}
