//! Holds changes that would drain connections, if the Gateway's configuration asks for it.
//!
//! A held change waits until it is approved on this host or in the configuration, or until a
//! maintenance window opens. Nothing is stored: after a restart, the same comparison holds the same
//! change again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use sesame_proto::digest;
use sesame_proto::owned::{self, is_of_user};
use sesame_proto::schema::{MaintenanceWindow, Rollout};
use sesame_render::drains::{DrainedPort, drained_ports};

use crate::target::Target;

const WEEK: u32 = 7 * 24 * 60;
/// Check at least this often, because the clock may be adjusted.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeldDrain {
    pub(super) ports: Vec<DrainedPort>,
    digest: String,
    /// True if routes and policies wait too.
    whole: bool,
    /// When the next window opens.
    opens: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct DrainGuard {
    held: Option<HeldDrain>,
}

impl DrainGuard {
    /// Returns the target to serve instead of `new`, or `None` if `new` may replace `served`.
    pub(super) fn hold(
        &mut self,
        served: &Arc<Target>,
        new: &Target,
        now: Timestamp,
    ) -> Option<Arc<Target>> {
        self.held = None;
        let rollout = new.encoded.rest().rollout.as_ref();
        let rollout = rollout.filter(|rollout| rollout.hold_draining)?;
        if is_open(rollout, now) || drains(served, new).is_empty() {
            return None;
        }
        // Users of a Gateway must not make the changes of all others wait.
        let [before, after] = [served, new].map(|it| owned::listeners(it.encoded.rest()));
        let digest = digest::listeners(new.encoded.rest());
        if before == after || rollout.approved == digest {
            return None;
        }
        let (kept, whole) = served.holding(new);
        // Envoy may load keys with listeners, and their changes must not wait.
        let ports = drains(&kept, new);
        if ports.is_empty() {
            return None;
        }
        self.held = Some(HeldDrain {
            ports,
            digest,
            whole,
            opens: next_opening(&rollout.windows, now),
        });
        let is_same = kept.encoded == served.encoded && kept.options == served.options;
        Some(if is_same {
            Arc::clone(served)
        } else {
            Arc::new(kept)
        })
    }

    pub(super) fn held(&self) -> Option<&HeldDrain> {
        self.held.as_ref()
    }

    /// Forgets the held change. Returns false if nothing is held.
    pub(super) fn open(&mut self) -> bool {
        self.held.take().is_some()
    }

    /// Returns the time at which a window may have opened.
    pub(super) fn next(&self, now: Timestamp) -> Option<Instant> {
        let left = self.held.as_ref()?.opens?.duration_since(now);
        let left = Duration::try_from(left).unwrap_or_default();
        Some(Instant::now() + left.min(POLL_INTERVAL))
    }
}

impl HeldDrain {
    /// `open` returns the number of open connections of a port, if it is known.
    pub(super) fn message(&self, open: impl Fn(&DrainedPort) -> Option<u64>) -> String {
        let Self {
            ports,
            digest,
            whole,
            opens,
        } = self;
        let ports = ports.iter().map(|port| port.text(open(port)));
        let ports: Vec<String> = ports.collect();
        let window = opens.map(|opens| format!("; the next maintenance window opens at {opens}"));
        let waits = if *whole {
            "newer routes, protections and revocations wait too"
        } else {
            "routes and policies do not wait"
        };
        format!(
            "the newest change is held, because it drains connections: {}; {waits}; to approve it, \
             run `sesame-agent accept`, or annotate the Gateway with \
             projectsesame.io/approve-draining={digest}{}",
            ports.join(", "),
            window.unwrap_or_default()
        )
    }
}

/// Omits ports of which only users' connections drain.
fn drains(before: &Target, after: &Target) -> Vec<DrainedPort> {
    let ports = &before.encoded.rest().ports;
    let mut all = drained_ports([&before.rendered, &after.rendered], ports, &before.options);
    all.retain(|port| port.chains.is_empty() || !port.chains.iter().all(|it| is_of_user(it)));
    all
}

fn is_open(rollout: &Rollout, now: Timestamp) -> bool {
    let now = minute_of_week(now);
    let mut windows = rollout.windows.iter();
    windows.any(|MaintenanceWindow { start, minutes }| {
        let since = (now + WEEK - start % WEEK) % WEEK;
        since < *minutes
    })
}

fn next_opening(windows: &[MaintenanceWindow], now: Timestamp) -> Option<Timestamp> {
    let minute = minute_of_week(now);
    let waits = windows.iter().map(|window| {
        let wait = (window.start % WEEK + WEEK - minute) % WEEK;
        if wait == 0 { WEEK } else { wait }
    });
    let seconds = i64::from(waits.min()?) * 60;
    Timestamp::from_second(now.as_second().div_euclid(60) * 60 + seconds).ok()
}

/// Minutes since Monday, 00:00 UTC.
fn minute_of_week(now: Timestamp) -> u32 {
    let now = now.to_zoned(TimeZone::UTC);
    let day = now.weekday().to_monday_zero_offset();
    let minutes = (i32::from(day) * 24 + i32::from(now.hour())) * 60 + i32::from(now.minute());
    u32::try_from(minutes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(start: u32, minutes: u32) -> MaintenanceWindow {
        MaintenanceWindow { start, minutes }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn windows_open_by_time_of_week() {
        let rollout = |windows: &[MaintenanceWindow]| Rollout {
            hold_draining: true,
            approved: String::new(),
            windows: windows.to_vec(),
            ..Rollout::default()
        };
        // Sunday 23:00 to Monday 01:00.
        let night = rollout(&[window(WEEK - 60, 120)]);
        for (now, expected) in [
            // A Sunday.
            ("2026-11-29T22:59:59Z", false),
            ("2026-11-29T23:00:00Z", true),
            ("2026-11-30T00:59:59Z", true),
            ("2026-11-30T01:00:00Z", false),
            ("2026-12-03T23:30:00Z", false),
        ] {
            assert_eq!(is_open(&night, at(now)), expected, "{now}");
        }
        assert!(!is_open(&rollout(&[]), at("2026-11-29T23:00:00Z")));
        assert!(!is_open(
            &rollout(&[window(0, 0)]),
            at("2026-11-30T00:00:00Z")
        ));
    }

    #[test]
    fn next_window_is_announced() {
        let windows = [window(WEEK - 60, 120), window(26 * 60, 60)];
        for (now, expected) in [
            ("2026-11-30T00:00:30Z", "2026-12-01T02:00:00Z"),
            ("2026-12-01T02:00:30Z", "2026-12-06T23:00:00Z"),
        ] {
            assert_eq!(next_opening(&windows, at(now)), Some(at(expected)));
        }
        assert_eq!(next_opening(&[], at("2026-11-30T00:00:30Z")), None);
    }
}
