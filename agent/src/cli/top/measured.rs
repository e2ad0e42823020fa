//! Derives counts per backend from the agent's metrics, for hosts without access log files.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use sesame_kinds::api::NamespacedName;

use super::stages::StageTimes;
use super::tally::{Tally, TopCounts, TopReport};
use super::{Grouping, RowOrder};
use crate::cli::agent;
use sesame_envoy::admin::Sample;

/// Totals since Envoy started, by backend name.
type BackendCounts = BTreeMap<String, TopCounts>;

pub(super) struct MeasuredTraffic {
    socket: PathBuf,
    gateway: Option<NamespacedName>,
    window: SignedDuration,
    answers: VecDeque<(Timestamp, BackendCounts)>,
}

impl MeasuredTraffic {
    pub(super) fn new(
        socket: PathBuf,
        gateway: Option<NamespacedName>,
        window: SignedDuration,
    ) -> Self {
        Self {
            socket,
            gateway,
            window,
            answers: VecDeque::new(),
        }
    }

    /// If no response is as old as the window, compares with the oldest one.
    pub(super) fn report(&mut self, now: Timestamp) -> anyhow::Result<TopReport> {
        let answer = agent::ask(&self.socket, "/metrics")?;
        let answer = answer.ok_or_else(|| agent::not_running(&self.socket))?;
        let counts = read(&String::from_utf8_lossy(&answer), self.gateway.as_ref());
        self.answers.push_back((now, counts));
        // Keep one response that is at least as old as the window, and all newer ones.
        while self
            .answers
            .get(1)
            .is_some_and(|(at, _)| now.duration_since(*at) >= self.window)
        {
            self.answers.pop_front();
        }
        let mut tally = Tally::default();
        let first = self.answers.front().zip(self.answers.back());
        let Some(((from, before), (_, after))) = first else {
            anyhow::bail!("no data is available yet; try again in a few seconds");
        };
        for (name, counts) in after {
            *tally.entry(Grouping::Backend, name) = since(counts, before.get(name));
        }
        let seconds = now.duration_since(*from).as_secs_f64();
        Ok(TopReport {
            source: "metrics",
            from: *from,
            until: now,
            seconds,
            envoys: Vec::new(),
            rows: [(
                Grouping::Backend,
                tally.rows(Grouping::Backend, seconds, RowOrder::Requests),
            )]
            .into(),
        })
    }
}

fn read(text: &str, gateway: Option<&NamespacedName>) -> BackendCounts {
    let mut all = BackendCounts::new();
    for sample in text.lines().filter_map(Sample::read) {
        let Some(counted) = sample.name.strip_prefix("sesame_gateway_backend_") else {
            continue;
        };
        let is_of = |label, wanted: &str| sample.label(label) == Some(wanted);
        let meant = gateway.is_none_or(|gateway| {
            is_of("gateway_namespace", &gateway.namespace) && is_of("gateway", &gateway.name)
        });
        let Some(backend) = sample.label("backend").filter(|_| meant) else {
            continue;
        };
        let counts = all.entry(backend.to_owned()).or_default();
        let count = sample.count();
        match counted {
            "requests_total" => {
                counts.requests += count;
                let class = sample.label("code").and_then(|code| code.get(..1));
                let class = class.and_then(|class| class.parse::<usize>().ok());
                if let Some(sum) = class.and_then(|class| counts.classes.get_mut(class)) {
                    *sum += count;
                }
            }
            "retries_total" => counts.retried += count,
            "failures_total" => {
                if let Some(reason) = sample.label("reason") {
                    *counts.flags.entry(reason.to_owned()).or_default() += count;
                }
            }
            _ => {}
        }
    }
    all
}

/// If a counter has decreased because Envoy restarted, returns its current value.
fn since(now: &TopCounts, before: Option<&TopCounts>) -> TopCounts {
    let Some(before) = before else {
        // The backend is new in the metrics. Ignore its counts, which may cover more time than the
        // window.
        return TopCounts::default();
    };
    let more = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
    let flags = now.flags.iter().map(|(reason, count)| {
        let before = before.flags.get(reason).copied().unwrap_or(0);
        (reason.clone(), more(*count, before))
    });
    TopCounts {
        requests: more(now.requests, before.requests),
        classes: std::array::from_fn(|class| more(now.classes[class], before.classes[class])),
        retried: more(now.retried, before.retried),
        durations: BTreeMap::new(),
        stages: StageTimes::default(),
        flags: flags.filter(|(_, count)| *count > 0).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_counts_are_differences_of_two_scrapes() {
        let text = |ok: u64, failed: u64| {
            let of = r#"gateway_namespace="shop",gateway="edge",backend="Service/shop/cart/80""#;
            format!(
                "# HELP x\nsesame_gateway_backend_requests_total{{{of},code=\"2xx\"}} {ok}\n\
                 sesame_gateway_backend_failures_total{{{of},reason=\"overflow\"}} {failed}\n\
                 sesame_gateway_backend_retries_total{{{of}}} {failed}\nsesame_agent_ready 1\n"
            )
        };
        let edge = NamespacedName::new("shop", "edge");
        let (before, after) = (read(&text(5, 1), Some(&edge)), read(&text(9, 4), None));
        let name = "Service/shop/cart/80";
        let counts = since(&after[name], before.get(name));
        assert_eq!(
            (counts.requests, counts.classes[2], counts.retried),
            (4, 4, 3)
        );
        assert_eq!(counts.flags["overflow"], 3);
        assert_eq!(since(&before[name], after.get(name)).requests, 5);
        let other = NamespacedName::new("shop", "other");
        assert!(read(&text(1, 1), Some(&other)).is_empty());
    }
}
