//! Measures the Envoy processes' CPU use and wait times.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use sesame_host::processes::{ProcessorTimes, processor_times};

#[derive(Debug, Default)]
pub(super) struct ProcessorWatch {
    last: BTreeMap<u32, (Instant, ProcessorTimes)>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProcessorUse {
    pub(super) pid: u32,
    /// CPU seconds per second, summed over all threads.
    pub(super) cores: f64,
    /// Seconds per second that runnable threads waited for a CPU, summed over all threads.
    pub(super) waiting: f64,
    pub(super) waiting_percent: u64,
}

impl ProcessorWatch {
    /// Skips processes that were not in the previous sample.
    pub(super) fn sample(&mut self, pids: Vec<u32>) -> Vec<ProcessorUse> {
        let now = Instant::now();
        let samples = pids
            .into_iter()
            .filter_map(|pid| Some((pid, (now, processor_times(pid)?))));
        let samples: BTreeMap<u32, (Instant, ProcessorTimes)> = samples.collect();
        let uses = samples.iter().filter_map(|(pid, (_, times))| {
            let (last_sample, before) = self.last.get(pid)?;
            let ran = times.ran.saturating_sub(before.ran).as_secs_f64();
            let waited = times.waited.saturating_sub(before.waited).as_secs_f64();
            let passed = now.duration_since(*last_sample).as_secs_f64();
            Some(ProcessorUse::of(*pid, ran, waited, passed))
        });
        let uses = uses.collect();
        self.last = samples;
        uses
    }
}

impl ProcessorUse {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a percentage of non-negative durations"
    )]
    fn of(pid: u32, ran: f64, waited: f64, passed: f64) -> Self {
        let busy = ran + waited;
        let per_second = |time: f64| (time / passed.max(0.001) * 100.0).round() / 100.0;
        Self {
            pid,
            cores: per_second(ran),
            waiting: per_second(waited),
            waiting_percent: if busy > 0.0 {
                (waited / busy * 100.0).round() as u64
            } else {
                0
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_share_of_runnable_time() {
        let starved = ProcessorUse::of(7, 0.5, 1.5, 2.0);
        assert_eq!(
            (
                starved.cores.to_string(),
                starved.waiting.to_string(),
                starved.waiting_percent
            ),
            ("0.25".to_owned(), "0.75".to_owned(), 75)
        );
        assert_eq!(ProcessorUse::of(7, 0.0, 0.0, 2.0).waiting_percent, 0);
    }

    #[test]
    fn first_processor_sample_reports_nothing() {
        let mut watch = ProcessorWatch::default();
        let own = std::process::id();
        assert_eq!(watch.sample(vec![own]), []);
        assert_eq!(watch.sample(vec![own, u32::MAX]).len(), 1);
        assert_eq!(watch.sample(vec![]), []);
    }
}
