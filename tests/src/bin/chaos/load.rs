//! Requests to all hosts, over new and kept connections. Failures are streamed with their times, so
//! that each can be compared with the faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::probe::{Failed, Kept, Loss, Probe};

/// Workers per host for each kind of connection.
const WORKERS: usize = 2;
/// Pause after each request. The load must leave CPU time for the changes.
const PAUSE: Duration = Duration::from_millis(30);

/// A failed request.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) host: usize,
    pub(crate) from: Instant,
    pub(crate) until: Instant,
    /// The request, and whether its connection was new.
    pub(crate) what: String,
    pub(crate) cause: String,
    pub(crate) loss: Loss,
}

/// A running load, which stops on drop.
pub(crate) struct Load {
    sent: Arc<AtomicU64>,
    failures: mpsc::UnboundedReceiver<Failure>,
    _workers: JoinSet<()>,
}

impl Load {
    /// Starts the workers. `hosts` has the probes of each host.
    pub(crate) fn start(hosts: &[Vec<Probe>]) -> Self {
        let sent = Arc::new(AtomicU64::new(0));
        let (sender, failures) = mpsc::unbounded_channel();
        let mut workers = JoinSet::new();
        for (host, probes) in hosts.iter().enumerate() {
            for keep in [true, false].repeat(WORKERS) {
                let worker = Worker {
                    host,
                    probes: probes.clone(),
                    keep,
                    sent: Arc::clone(&sent),
                    failures: sender.clone(),
                };
                workers.spawn(worker.run());
            }
        }
        Self {
            sent,
            failures,
            _workers: workers,
        }
    }

    /// Returns the number of requests sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the failures since the last call.
    pub(crate) fn failures(&mut self) -> Vec<Failure> {
        std::iter::from_fn(|| self.failures.try_recv().ok()).collect()
    }
}

struct Worker {
    host: usize,
    probes: Vec<Probe>,
    keep: bool,
    sent: Arc<AtomicU64>,
    failures: mpsc::UnboundedSender<Failure>,
}

impl Worker {
    async fn run(self) {
        let mut kept: Vec<Option<Kept>> = self.probes.iter().map(|_| None).collect();
        for index in (0..self.probes.len()).cycle() {
            if self
                .once(&self.probes[index], &mut kept[index])
                .await
                .is_err()
            {
                return;
            }
            if !self.keep {
                kept[index] = None;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns an error if the load has ended.
    async fn once(
        &self,
        probe: &Probe,
        kept: &mut Option<Kept>,
    ) -> Result<(), mpsc::error::SendError<Failure>> {
        let used = kept.as_ref().map(|kept| kept.used);
        let began = Instant::now();
        let result = probe.send(kept).await;
        self.sent.fetch_add(1, Ordering::Relaxed);
        let Err(Failed { loss, cause }) = result else {
            return Ok(());
        };
        let connection = match used {
            Some(used) => format!("kept connection, used {:?} before", began - used),
            None => "new connection".to_owned(),
        };
        self.failures.send(Failure {
            host: self.host,
            from: match loss {
                Loss::Request | Loss::Leak => began,
                // The connection may have been lost at any time since its last use.
                Loss::Http3Connection | Loss::TcpConnection => used.unwrap_or(began),
            },
            until: Instant::now(),
            what: format!("{probe} over a {connection}"),
            cause,
            loss,
        })
    }
}
