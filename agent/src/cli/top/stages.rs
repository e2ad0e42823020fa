//! Sums request durations by stage, excluding time that Envoy did not measure.

use serde::Serialize;

use sesame_envoy::access_log::LogEntry;

/// Time spent in each stage in milliseconds, summed over all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StageTimes {
    pub(super) authorization: u64,
    /// Time until the last attempt was sent, including earlier attempts and connection setup, but
    /// excluding authorization.
    pub(super) before_backend: u64,
    /// A slow client also increases this time.
    pub(super) upload: u64,
    pub(super) backend: u64,
    /// A slow backend or client increases this time.
    pub(super) download: u64,
}

impl StageTimes {
    pub(super) fn record(&mut self, entry: &LogEntry) {
        let asked = [entry.authorization_us, entry.listener_authorization_us];
        let authorization = asked.into_iter().flatten().fold(0, u64::saturating_add) / 1000;
        // If the request did not reach a backend, its whole duration counts as time before the
        // backend.
        let before = entry.before_backend_ms.or(entry.duration_ms);
        let rest = before.unwrap_or(0).saturating_sub(authorization);
        self.add(&Self {
            authorization,
            before_backend: if entry.status.is_some() { rest } else { 0 },
            upload: entry.upload_ms.unwrap_or(0),
            backend: entry.backend_ms.unwrap_or(0),
            download: entry.download_ms.unwrap_or(0),
        });
    }

    pub(super) fn add(&mut self, other: &Self) {
        let Self {
            authorization,
            before_backend,
            upload,
            backend,
            download,
        } = other;
        for (sum, more) in [
            (&mut self.authorization, authorization),
            (&mut self.before_backend, before_backend),
            (&mut self.upload, upload),
            (&mut self.backend, backend),
            (&mut self.download, download),
        ] {
            *sum = sum.saturating_add(*more);
        }
    }

    /// Returns the longest stage and its percentage of the total, or `None` if the total is zero.
    pub(super) fn longest(&self) -> Option<(&'static str, u64)> {
        let Self {
            authorization,
            before_backend,
            upload,
            backend,
            download,
        } = *self;
        let stages = [
            ("authorization", authorization),
            ("before backend", before_backend),
            ("upload", upload),
            ("backend", backend),
            ("download", download),
        ];
        let all: u128 = stages.iter().map(|(_, time)| u128::from(*time)).sum();
        let (name, time) = stages.into_iter().max_by_key(|(_, time)| *time)?;
        let share = (u128::from(time) * 100).checked_div(all)?;
        Some((name, u64::try_from(share).unwrap_or(100)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> StageTimes {
        let mut stages = StageTimes::default();
        stages.record(&LogEntry::read(line).unwrap());
        stages
    }

    #[test]
    fn the_longest_stage_is_named_with_its_share() {
        let slow = of(
            r#"{"status":200,"duration_ms":1000,"before_backend_ms":150,"authorization_us":"100999","upload_ms":0,
                "backend_ms":800,"download_ms":50}"#,
        );
        assert_eq!((slow.authorization, slow.before_backend), (100, 50));
        assert_eq!(slow.longest(), Some(("backend", 80)));
        assert_eq!(StageTimes::default().longest(), None);
    }

    #[test]
    fn time_counts_before_backend_when_none_was_reached() {
        let refused = of(r#"{"status":503,"duration_ms":900,"authorization_us":"300000"}"#);
        assert_eq!(refused.longest(), Some(("before backend", 66)));
        // Passed-through connections may stay open indefinitely, so their durations are not
        // counted.
        assert_eq!(of(r#"{"duration_ms":9000}"#).longest(), None);
    }
}
