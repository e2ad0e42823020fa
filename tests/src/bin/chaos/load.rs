//! Requests to all hosts, over new and kept connections. Failures are streamed with their times, so
//! that each can be compared with the faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use sesame_tests::client::{Connection, Reply, Request};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Workers per host for each kind of connection.
const WORKERS: usize = 2;
/// Pause after each request. The load must leave CPU time for the changes.
const PAUSE: Duration = Duration::from_millis(30);

/// A request that is repeated.
#[derive(Clone)]
pub(crate) struct Probe {
    pub(crate) request: Request,
    /// The only accepted status.
    pub(crate) expected: u16,
}

/// A failed request.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) host: usize,
    pub(crate) from: Instant,
    pub(crate) until: Instant,
    /// The request, and whether its connection was new.
    pub(crate) what: String,
    pub(crate) cause: String,
    /// True if a request was served that must be denied.
    pub(crate) is_leak: bool,
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
        let mut kept: Vec<Option<Connection>> = self.probes.iter().map(|_| None).collect();
        for index in (0..self.probes.len()).cycle() {
            let probe = &self.probes[index];
            let from = Instant::now();
            let result = self.once(&mut kept[index], &probe.request).await;
            self.sent.fetch_add(1, Ordering::Relaxed);
            let failed = match result {
                Ok(reply) if reply.status == probe.expected => None,
                Ok(reply) => {
                    let is_leak = probe.expected >= 400 && reply.status < 400;
                    Some((describe(&reply), is_leak))
                }
                Err(error) => Some((format!("{error:#}"), false)),
            };
            if let Some((cause, is_leak)) = failed {
                let connection = if self.keep { "kept" } else { "new" };
                let failure = Failure {
                    host: self.host,
                    from,
                    until: Instant::now(),
                    what: format!("{} over a {connection} connection", probe.request),
                    cause,
                    is_leak,
                };
                if self.failures.send(failure).is_err() {
                    return;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn once(&self, kept: &mut Option<Connection>, request: &Request) -> Result<Reply> {
        if let Some(mut connection) = kept.take()
            && connection.is_open().await
        {
            match connection.send(request).await {
                // The server closed the connection before any byte was written.
                Err(error) if is_unsent(&error) => {}
                result => {
                    *kept = result.is_ok().then_some(connection);
                    return result;
                }
            }
        }
        let mut connection = Connection::open(request).await?;
        let reply = connection.send(request).await?;
        *kept = self.keep.then_some(connection);
        Ok(reply)
    }
}

fn is_unsent(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<hyper::Error>();
    error.is_some_and(hyper::Error::is_canceled)
}

fn describe(reply: &Reply) -> String {
    let body = String::from_utf8_lossy(&reply.body);
    let start: String = body.trim().chars().take(80).collect();
    format!("status {}: {start}", reply.status)
}
