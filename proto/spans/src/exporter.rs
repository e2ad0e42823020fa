//! Queues spans, and exports them in a background task. The queue is bounded: if the collector is
//! slow or unreachable, spans are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::collector::{Collector, CollectorError, CollectorSettings};
use crate::otlp;
use crate::span::ChangeSpan;

const QUEUE: usize = 1024;
const BATCH: usize = 256;
const BATCH_DELAY: Duration = Duration::from_millis(500);
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Identity of the exporting program, shown by the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reporting {
    /// Name of the program.
    pub service: String,
    /// Version of the program.
    pub version: String,
    /// Name of the host or replica.
    pub host: String,
}

/// Handle for sending spans, which does nothing without a collector.
#[derive(Clone, Debug, Default)]
pub struct Spans(Option<Arc<SpanQueue>>);

#[derive(Debug)]
struct SpanQueue {
    sender: mpsc::Sender<ChangeSpan>,
    host: String,
    /// Number of spans dropped since the task last read this counter.
    lost: AtomicU64,
}

impl Spans {
    /// Starts the export task. Without `settings`, all spans are discarded.
    pub fn start(
        settings: Option<CollectorSettings>,
        reporting: Reporting,
    ) -> Result<Self, CollectorError> {
        let Some(settings) = settings else {
            return Ok(Self(None));
        };
        let collector = Collector::new(settings)?;
        let (sender, spans) = mpsc::channel(QUEUE);
        let queue = Arc::new(SpanQueue {
            sender,
            host: reporting.host.clone(),
            lost: AtomicU64::new(0),
        });
        tokio::spawn(run(collector, reporting, spans, Arc::downgrade(&queue)));
        Ok(Self(Some(queue)))
    }

    /// Returns true if a collector is configured.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the name of the reporting host or replica.
    pub fn host(&self) -> &str {
        self.0.as_deref().map_or("", |queue| &queue.host)
    }

    /// Queues a span. Drops the span if the queue is full.
    pub fn send(&self, span: ChangeSpan) {
        if let Some(queue) = &self.0
            && queue.sender.try_send(span).is_err()
        {
            queue.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn run(
    mut collector: Collector,
    reporting: Reporting,
    mut spans: mpsc::Receiver<ChangeSpan>,
    queue: std::sync::Weak<SpanQueue>,
) {
    let mut failing = false;
    let mut lost = 0;
    let mut batch = Vec::with_capacity(BATCH);
    while let Some(first) = spans.recv().await {
        tokio::time::sleep(BATCH_DELAY).await;
        batch.push(first);
        while batch.len() < BATCH
            && let Ok(span) = spans.try_recv()
        {
            batch.push(span);
        }
        let body = otlp::encode(&reporting, &batch);
        let mut pauses = PAUSES.iter();
        let is_sent = loop {
            let Err(fault) = collector.send(body.clone()).await else {
                break true;
            };
            if !std::mem::replace(&mut failing, true) {
                tracing::warn!(
                    "spans cannot be sent to the collector; they are lost until it accepts them: \
                    {}",
                    fault.reason
                );
            }
            match pauses.next().filter(|_| !fault.lasting) {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => break false,
            }
        };
        if !is_sent {
            lost += batch.len() as u64;
        }
        batch.clear();
        if let Some(queue) = queue.upgrade() {
            lost += queue.lost.swap(0, Ordering::Relaxed);
        }
        if is_sent {
            if std::mem::take(&mut failing) {
                tracing::info!(lost, "the collector accepts spans again");
            } else if lost > 0 {
                tracing::warn!(
                    lost,
                    "dropped spans, because they arrived faster than they could be sent"
                );
            }
            lost = 0;
        }
    }
}
