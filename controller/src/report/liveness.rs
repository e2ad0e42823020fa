//! Distinguishes live from dead hosts by the monotonic time since their reports last changed.
//! Hosts' clocks can be wrong, so they are used only if the API server recorded no write time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use sesame_published::{GatewayAgent, STATUS_MANAGER};

#[derive(Clone, Copy, Debug)]
pub(super) struct ClockReading {
    pub(super) steady: Instant,
    pub(super) wall: Timestamp,
}

impl ClockReading {
    pub(super) fn now() -> Self {
        Self {
            steady: Instant::now(),
            wall: Timestamp::now(),
        }
    }
}

/// Compared only for equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReportMark {
    heartbeat: Option<Timestamp>,
    written: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct LastReport {
    mark: ReportMark,
    /// When the report last changed, by the monotonic clock.
    since: Instant,
    /// How long the host had been silent at `since`.
    before: Duration,
}

#[derive(Debug, Default)]
pub(super) struct AgentLiveness {
    heard: BTreeMap<String, LastReport>,
    /// Latest known time of the API server, and when it became known.
    server: Option<(Timestamp, Instant)>,
}

impl AgentLiveness {
    /// Pass all reports of a list in one call, because the latest timestamp among them applies to
    /// all.
    pub(super) fn hear<'a>(
        &mut self,
        agents: impl Iterator<Item = (&'a str, &'a GatewayAgent)> + Clone,
        now: ClockReading,
    ) {
        for (_, agent) in agents.clone() {
            if let Some(written) = written(agent)
                && self.server_time(now).is_none_or(|known| written > known)
            {
                self.server = Some((written, now.steady));
            }
        }
        for (name, agent) in agents {
            let mark = ReportMark {
                heartbeat: agent.status.as_ref().and_then(|status| status.heartbeat),
                written: written(agent),
            };
            let before = match self.heard.get(name) {
                Some(heard) if heard.mark == mark => continue,
                // Without a status, an agent has not reported yet.
                Some(heard) if heard.mark.heartbeat.is_some() => Duration::ZERO,
                _ => self.before(mark, now),
            };
            let since = now.steady;
            let heard = LastReport {
                mark,
                since,
                before,
            };
            self.heard.insert(name.to_owned(), heard);
        }
    }

    pub(super) fn retain(&mut self, there: impl Fn(&str) -> bool) {
        self.heard.retain(|name, _| there(name));
    }

    pub(super) fn silence(&self, name: &str, now: ClockReading) -> Duration {
        self.heard.get(name).map_or(Duration::ZERO, |heard| {
            heard.before + now.steady.saturating_duration_since(heard.since)
        })
    }

    /// Returns how long the host was silent before this process first read the report.
    fn before(&self, mark: ReportMark, now: ClockReading) -> Duration {
        let silence = match (mark.written, mark.heartbeat) {
            (Some(written), _) => self
                .server_time(now)
                .map(|server| server.duration_since(written)),
            (None, Some(heartbeat)) => Some(now.wall.duration_since(heartbeat)),
            (None, None) => None,
        };
        silence
            .and_then(|silence| Duration::try_from(silence).ok())
            .unwrap_or(Duration::ZERO)
    }

    /// Returns a lower bound of the API server's current time.
    fn server_time(&self, now: ClockReading) -> Option<Timestamp> {
        let (time, since) = self.server?;
        let passed = now.steady.saturating_duration_since(since);
        Some(time.checked_add(passed).unwrap_or(time))
    }
}

/// Returns when the report was written, by the API server's clock.
fn written(agent: &GatewayAgent) -> Option<Timestamp> {
    let fields = agent.metadata.managed_fields.iter().flatten();
    let notes = fields.filter(|entry| entry.manager.as_deref() == Some(STATUS_MANAGER));
    notes
        .filter_map(|entry| entry.time.as_ref().map(|time| time.0))
        .max()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
    use proptest::prelude::*;

    use super::*;
    use sesame_published::{GatewayAgentSpec, GatewayAgentStatus};

    const YEAR: i64 = 365 * 24 * 3600;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    /// `heartbeat` is in the host's time, and `written` in the API server's.
    fn agent(heartbeat: i64, written: Option<i64>) -> GatewayAgent {
        let mut agent = GatewayAgent::new("a", GatewayAgentSpec::default());
        agent.status = Some(GatewayAgentStatus {
            heartbeat: Some(second(heartbeat)),
            ..GatewayAgentStatus::default()
        });
        agent.metadata.managed_fields = written.map(|written| {
            vec![ManagedFieldsEntry {
                manager: Some(STATUS_MANAGER.to_owned()),
                time: Some(Time(second(written))),
                ..ManagedFieldsEntry::default()
            }]
        });
        agent
    }

    fn hear(silences: &mut AgentLiveness, agents: &[(&str, GatewayAgent)], now: ClockReading) {
        silences.hear(agents.iter().map(|(name, agent)| (*name, agent)), now);
    }

    fn seconds(silences: &AgentLiveness, name: &str, now: ClockReading) -> u64 {
        silences.silence(name, now).as_secs()
    }

    #[test]
    fn first_report_silence_comes_from_api_server() {
        let now = ClockReading {
            steady: Instant::now(),
            wall: second(3 * YEAR),
        };
        let mut silences = AgentLiveness::default();
        let all = [
            ("live", agent(YEAR, Some(10_000))),
            ("dead", agent(9 * YEAR, Some(9_000))),
            ("strange", agent(3 * YEAR - 600, None)),
        ];
        hear(&mut silences, &all, now);
        assert_eq!(seconds(&silences, "live", now), 0);
        assert_eq!(seconds(&silences, "dead", now), 1_000);
        assert_eq!(seconds(&silences, "strange", now), 600);
        assert_eq!(seconds(&silences, "unknown", now), 0);
        let later = ClockReading {
            steady: now.steady + Duration::from_secs(100),
            wall: second(1),
        };
        let again = [
            ("live", agent(YEAR, Some(10_000))),
            ("dead", agent(9 * YEAR + 1, Some(10_100))),
            ("strange", agent(0, None)),
        ];
        hear(&mut silences, &again, later);
        assert_eq!(seconds(&silences, "live", later), 100);
        assert_eq!(seconds(&silences, "dead", later), 0);
        assert_eq!(seconds(&silences, "strange", later), 0);
    }

    #[test]
    fn later_host_silence_uses_latest_server_time() {
        let now = ClockReading {
            steady: Instant::now(),
            wall: second(0),
        };
        let mut silences = AgentLiveness::default();
        hear(&mut silences, &[("a", agent(0, Some(1_000)))], now);
        let later = ClockReading {
            steady: now.steady + Duration::from_secs(60),
            ..now
        };
        hear(&mut silences, &[("b", agent(0, Some(1_030)))], later);
        assert_eq!(seconds(&silences, "b", later), 30);
        silences.retain(|name| name == "b");
        assert_eq!(seconds(&silences, "a", later), 0);
    }

    proptest! {
        /// A host that writes every minute never appears silent for more than a minute, even if
        /// both clocks are wrong.
        #[test]
        fn writing_host_is_heard_whatever_clocks_say(
            jumps in prop::collection::vec((-YEAR..YEAR, -YEAR..YEAR), 1..40)
        ) {
            let start = Instant::now();
            let mut silences = AgentLiveness::default();
            let mut host = 50 * YEAR;
            let mut wall = 50 * YEAR;
            for (minute, (host_jump, our_jump)) in (0_u64..).zip(jumps) {
                host += 60 + host_jump;
                wall += 60 + our_jump;
                let passed = i64::try_from(minute * 60).expect("fits into i64");
                let now = ClockReading {
                    steady: start + Duration::from_secs(minute * 60),
                    wall: second(wall),
                };
                hear(&mut silences, &[("a", agent(host, Some(1_000 + passed)))], now);
                prop_assert_eq!(silences.silence("a", now), Duration::ZERO);
                let later = ClockReading {
                    steady: now.steady + Duration::from_secs(59),
                    wall: second(wall) + SignedDuration::from_hours(24 * 365),
                };
                prop_assert_eq!(silences.silence("a", later), Duration::from_secs(59));
            }
        }
    }
}
