//! Counts recent requests in the access logs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use jiff::{SignedDuration, Timestamp};

use super::tally::{Tally, TopReport};
use super::{Grouping, RowOrder};
use sesame_envoy::access_log::{LogEntry, LogReader, Readability};

/// Maximum delay between a request's end and its log line. Envoy buffers log lines for a second.
const LATE: SignedDuration = SignedDuration::from_secs(2);

pub(super) struct LoggedTraffic {
    logs: Vec<(PathBuf, LogReader, Readability)>,
    seconds: BTreeMap<i64, Tally>,
    window: SignedDuration,
    by: Vec<Grouping>,
    order: RowOrder,
}

impl LoggedTraffic {
    pub(super) fn open(
        files: Vec<PathBuf>,
        window: SignedDuration,
        (by, order): (Vec<Grouping>, RowOrder),
    ) -> anyhow::Result<Self> {
        let since = Timestamp::now().saturating_sub(window.saturating_add(LATE))?;
        let mut logs = Vec::new();
        for file in files {
            let log = LogReader::open_since(&file, SystemTime::from(since))
                .with_context(|| file.display().to_string())?;
            logs.push((file, log, Readability::default()));
        }
        Ok(Self {
            logs,
            seconds: BTreeMap::new(),
            window,
            by,
            order,
        })
    }

    pub(super) fn report(&mut self, now: Timestamp) -> anyhow::Result<TopReport> {
        let until = now.saturating_sub(LATE)?;
        let from = until.saturating_sub(self.window)?;
        self.seconds.retain(|second, _| *second >= from.as_second());
        for (file, log, readability) in &mut self.logs {
            while let Some(line) = log
                .next_line()
                .with_context(|| file.display().to_string())?
            {
                let entry = LogEntry::read(&line);
                readability.record(&line, entry.as_ref());
                let ended = entry.and_then(|entry| Some((entry.ended()?, entry)));
                if let Some((ended, entry)) = ended
                    && ended >= from
                {
                    let second = self.seconds.entry(ended.as_second()).or_default();
                    second.record(&entry, &self.by);
                }
            }
            if let Some(complaint) = readability.complaint(file) {
                bail!(complaint);
            }
        }
        let mut sum = Tally::default();
        let last = until.as_second();
        for (_, tally) in self.seconds.range(from.as_second()..last) {
            sum.add(tally);
        }
        let seconds = self.window.as_secs_f64();
        let rows = |grouping: &Grouping| (*grouping, sum.rows(*grouping, seconds, self.order));
        Ok(TopReport {
            source: "accessLog",
            from,
            until,
            seconds,
            envoys: Vec::new(),
            rows: self.by.iter().map(rows).collect(),
        })
    }
}
