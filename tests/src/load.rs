//! Sends requests while the configuration changes, and counts failures. A worker retries only if
//! the server closed a reused connection before any byte was written.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use tokio::task::JoinSet;

use crate::client::{Connection, Reply, Request};
use crate::wait::holds;

/// Maximum number of failures that a report keeps; later failures are only counted.
const KEPT: usize = 200;

/// Time after which workers stop by themselves, in case no test stops them.
const LONGEST: Duration = Duration::from_secs(3600);

/// The kernel has only 28,000 local ports. After a connection to another machine, the local port
/// stays reserved for a minute.
const BETWEEN_CONNECTIONS: Duration = Duration::from_millis(5);

/// The requests to send, and the number of workers.
#[derive(Clone)]
pub struct Plan {
    /// Requests that each worker sends in turn, repeatedly.
    pub requests: Vec<Request>,
    /// Number of workers that reuse their connections.
    pub keep_alive: usize,
    /// True if a worker can send all requests over one connection.
    pub share: bool,
    /// Number of workers that open a new connection for each request.
    pub fresh: usize,
    /// Returns true if a response is as expected.
    pub good: fn(&Reply) -> bool,
}

impl Plan {
    /// Creates a plan with two workers of each kind. Only status 200 is expected.
    pub fn new(requests: Vec<Request>) -> Self {
        Self {
            requests,
            keep_alive: 2,
            share: false,
            fresh: 2,
            good: |reply| reply.status == 200,
        }
    }
}

/// A running load.
pub struct Load {
    start: Instant,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    workers: JoinSet<Worked>,
}

/// A failed request.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Time since the start of the load.
    pub at: Duration,
    /// Kind of the worker's connections: `keep-alive` or `fresh`.
    pub worker: &'static str,
    /// Cause of the failure.
    pub cause: String,
}

/// The results of a load.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// Number of requests that were sent.
    pub requests: u64,
    /// Number of requests that failed.
    pub failed: usize,
    /// The first failures with their causes, ordered by time.
    pub failures: Vec<Failure>,
    /// Longest time between two consecutive good responses to the same worker.
    pub longest_gap: Duration,
}

#[derive(Default)]
struct Worked {
    failures: Vec<Failure>,
    longest_gap: Duration,
}

impl Load {
    /// Starts the workers.
    pub fn start(plan: &Plan) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let start = Instant::now();
        let mut workers = JoinSet::new();
        for index in 0..plan.keep_alive + plan.fresh {
            let worker = Worker {
                plan: plan.clone(),
                keep: index < plan.keep_alive,
                start,
                stop: Arc::clone(&stop),
                sent: Arc::clone(&sent),
            };
            workers.spawn(worker.run());
        }
        Self {
            start,
            stop,
            sent,
            workers,
        }
    }

    /// Returns the number of requests sent so far.
    pub fn requests(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the time since the start, comparable with [`Failure::at`].
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits until the workers have sent `count` more requests.
    pub async fn pass(&self, count: u64) {
        let target = self.requests() + count;
        crate::wait::eventually("the load continues", Duration::from_secs(60), async || {
            let sent = self.requests();
            holds(sent >= target, || format!("{sent} of {target} requests"))
        })
        .await;
    }

    /// Waits for in-flight requests, and returns the report.
    pub async fn stop(mut self) -> LoadReport {
        self.stop.store(true, Ordering::Relaxed);
        let mut failures = Vec::new();
        let mut longest_gap = Duration::ZERO;
        while let Some(seen) = self.workers.join_next().await {
            let seen = seen.expect("a worker does not panic");
            failures.extend(seen.failures);
            longest_gap = longest_gap.max(seen.longest_gap);
        }
        failures.sort_by_key(|failure| failure.at);
        let failed = failures.len();
        failures.truncate(KEPT);
        LoadReport {
            requests: self.requests(),
            failed,
            failures,
            longest_gap,
        }
    }
}

impl LoadReport {
    /// Prints the results, and appends them to the file `$SESAME_FIGURES` if set.
    pub fn print(&self, scenario: &str) {
        let mut causes: BTreeMap<&str, usize> = BTreeMap::new();
        for Failure { cause, .. } in &self.failures {
            let start = cause
                .char_indices()
                .nth(60)
                .map_or(cause.len(), |(at, _)| at);
            *causes.entry(cause[..start].trim()).or_default() += 1;
        }
        let causes: Vec<String> = causes
            .iter()
            .map(|(cause, n)| format!("{n} × {cause}"))
            .collect();
        let row = format!(
            "| {scenario} | {} | {} | {} | {} ms |\n",
            self.requests,
            self.failed,
            causes.join("; "),
            self.longest_gap.as_millis()
        );
        eprint!("{row}");
        if let Some(path) = std::env::var_os("SESAME_FIGURES") {
            let file = std::fs::File::options()
                .create(true)
                .append(true)
                .open(path);
            let written = file.and_then(|mut file| file.write_all(row.as_bytes()));
            written.expect("write the figures");
        }
    }

    /// Prints the results. Panics if a request failed or none was sent.
    pub fn clean(&self, scenario: &str) {
        self.print(scenario);
        self.assert_clean();
    }

    /// Panics if a request failed or none was sent.
    pub fn assert_clean(&self) {
        assert!(self.requests > 0, "no request was sent");
        assert_eq!(self.failed, 0, "{self}");
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} of {} requests failed", self.failed, self.requests)?;
        for Failure { at, worker, cause } in self.failures.iter().take(20) {
            writeln!(f, "  {:.3} s, {worker}: {cause}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

struct Worker {
    plan: Plan,
    keep: bool,
    start: Instant,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
}

impl Worker {
    async fn run(self) -> Worked {
        let worker = if self.keep { "keep-alive" } else { "fresh" };
        let mut seen = Worked::default();
        let mut last_good = Instant::now();
        // Without `share`, requests may differ in address, server name or protocol, so each one has
        // its own connection.
        let Plan {
            requests, share, ..
        } = &self.plan;
        let slots = if *share { 1 } else { requests.len() };
        let mut kept: Vec<Option<Connection>> = (0..slots).map(|_| None).collect();
        for index in (0..requests.len()).cycle() {
            if self.stop.load(Ordering::Relaxed) || self.start.elapsed() > LONGEST {
                break;
            }
            let request = &requests[index];
            let far = !self.keep && !request.address().ip().is_loopback();
            let next = tokio::time::Instant::now() + BETWEEN_CONNECTIONS;
            let result = self.once(&mut kept[index % slots], request).await;
            if far {
                tokio::time::sleep_until(next).await;
            }
            self.sent.fetch_add(1, Ordering::Relaxed);
            let cause = match result {
                Ok(reply) if (self.plan.good)(&reply) => {
                    seen.longest_gap = seen.longest_gap.max(last_good.elapsed());
                    last_good = Instant::now();
                    continue;
                }
                Ok(reply) => {
                    format!(
                        "status {}: {}",
                        reply.status,
                        String::from_utf8_lossy(&reply.body)
                    )
                }
                Err(error) => format!("{error:#}"),
            };
            seen.failures.push(Failure {
                at: self.start.elapsed(),
                worker,
                cause,
            });
            // Refused connections fail immediately, so without a delay this would be a busy loop.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        seen
    }

    async fn once(&self, kept: &mut Option<Connection>, request: &Request) -> Result<Reply> {
        let mut reused = None;
        if let Some(mut connection) = kept.take()
            && connection.is_open().await
        {
            reused = Some(connection);
        }
        if let Some(mut connection) = reused {
            match connection.send(request).await {
                Err(error) if never_sent(&error) => {}
                result => {
                    *kept = Some(connection);
                    return result;
                }
            }
        }
        let mut connection = Connection::open(request).await?;
        let reply = connection.send(request).await?;
        if self.keep {
            *kept = Some(connection);
        }
        Ok(reply)
    }
}

/// Returns true if the server closed the connection before any byte was written.
fn never_sent(error: &Error) -> bool {
    error
        .downcast_ref::<hyper::Error>()
        .is_some_and(hyper::Error::is_canceled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;

    #[tokio::test]
    async fn load_counts_requests_without_failures() {
        let backend = Backend::start("a").await;
        let load = Load::start(&Plan::new(vec![Request::get(backend.address(), "h", "/")]));
        load.pass(100).await;
        let report = load.stop().await;
        report.assert_clean();
        assert_eq!(report.requests, backend.count());
    }

    #[tokio::test]
    async fn load_fails_on_wrong_status_or_refused_connection() {
        let backend = Backend::start("a").await;
        let plan = Plan::new(vec![
            Request::get(backend.address(), "h", "/"),
            Request::get(backend.address(), "h", "/status/503"),
        ]);
        let load = Load::start(&plan);
        load.pass(20).await;
        backend.close().await;
        load.pass(20).await;
        let report = load.stop().await;
        let causes: Vec<&str> = report
            .failures
            .iter()
            .map(|failure| failure.cause.as_str())
            .collect();
        assert!(
            causes.iter().any(|cause| cause.starts_with("status 503")),
            "{report}"
        );
        assert!(
            causes.iter().any(|cause| cause.starts_with("connect to")),
            "{report}"
        );
        assert!(report.failed >= 20, "{report}");
    }
}
