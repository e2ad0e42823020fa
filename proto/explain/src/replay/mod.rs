//! Compares how two configurations handle the requests of an access log, without sending them.
//!
//! Reads a log in pieces of any size, in several threads. Memory is bounded, whatever the log
//! contains: equal requests are explained once, as long as the cache has room. A report never
//! contains header values or queries, which may be secrets, and does not depend on the number of
//! threads.

mod compare;
mod decide;
mod har;
mod json_lines;
mod lines;
mod logged;
mod relevance;
mod report;
mod side;
mod text_lines;
mod totals;
mod worker;

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::mpsc::sync_channel;
use std::thread::ScopedJoinHandle;

use sesame_proto::schema::Snapshot;

use self::lines::{LogPart, LogSplitter, MAX_HAR_BYTES};
pub use self::logged::LoggedRequest;
use self::relevance::RequestRelevance;
pub use self::report::{ReplayReport, ReplayedGroup, UnreadableLine, UnreadableLines, replay_text};
use self::totals::ReplayTotals;
use self::worker::ReplayWorker;
use super::ExplainError;
use super::request::ExplainRequest;

/// More threads would share the cache in pieces that are too small.
const MAX_THREADS: usize = 16;
/// Parts of the log that wait for each thread. A part is as large as a piece of the log.
const QUEUED_PARTS: usize = 2;
const NO_HEADERS: &[&str] = &[];

/// The Gateways of one configuration, without endpoints, which are not compared.
#[derive(Debug)]
pub struct ReplayConfiguration(Vec<Snapshot>);

impl ReplayConfiguration {
    /// Creates a configuration from the snapshots of its Gateways.
    pub fn new(snapshots: impl IntoIterator<Item = Snapshot>) -> Self {
        let snapshots = snapshots.into_iter().map(|mut snapshot| {
            snapshot.endpoints.clear();
            snapshot
        });
        Self(snapshots.collect())
    }
}

/// Checks a host that a user entered for lines without a host. It may have a port.
pub fn parse_log_host(text: &str) -> Result<String, String> {
    let request = ExplainRequest::parse("GET", &format!("http://{text}/"), NO_HEADERS, None);
    let authority = request.ok().map(|it| it.authority);
    authority
        .filter(|it| it == text)
        .ok_or_else(|| "expected a host such as shop.example.com".to_owned())
}

/// Why a log cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Several Gateways listen on a request's port.
    #[error("line {line}: {error}")]
    Several {
        /// Line of the request.
        line: u64,
        /// The Gateways.
        error: ExplainError,
    },
    /// Malformed HAR document.
    #[error(
        "malformed HAR document at line {line}, column {column}; expected \
         log.entries[].request with method and url"
    )]
    Har {
        /// Line of the error.
        line: usize,
        /// Column of the error.
        column: usize,
    },
    /// The HAR document is too large.
    #[error("the HAR document is larger than {MAX_HAR_BYTES} bytes; split it")]
    TooLarge,
    /// No line is a request.
    #[error("the log contains no readable request{0}")]
    NoRequest(String),
    /// More lines are unreadable than readable, so the result would say little.
    #[error("most of the log cannot be compared: {0}; remove these lines, or convert the log")]
    MostlyUnreadable(String),
    /// No request reaches a listener.
    #[error("{0} requests: none gets a response from either configuration; check the log's ports")]
    Unanswered(u64),
    /// No request matches a route, so equal responses mean nothing.
    #[error(
        "{0} requests: neither configuration has a route for any; check the log's hosts and --host"
    )]
    Unrouted(u64),
}

impl ReplayError {
    fn line(&self) -> u64 {
        match self {
            Self::Several { line, .. } => *line,
            _ => 0,
        }
    }
}

/// The configurations to compare, and the defaults for a log.
#[derive(Debug)]
pub struct Replay<'s> {
    /// The old configuration.
    pub old: &'s ReplayConfiguration,
    /// The new configuration.
    pub new: &'s ReplayConfiguration,
    /// Host of lines without a host.
    pub host: Option<String>,
    /// Number of threads. The result does not depend on it.
    pub threads: NonZeroUsize,
}

impl Replay<'_> {
    /// Compares the requests of one log, which `read` passes in pieces to its argument. Fails if
    /// the comparison says nothing, because it read or reached nothing.
    pub fn run<E: From<ReplayError>>(
        &self,
        read: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E>,
    ) -> Result<ReplayReport, E> {
        let relevance = RequestRelevance::new(self.old.0.iter().chain(&self.new.0));
        let threads = self.threads.get().min(MAX_THREADS);
        let (read, har, totals) = std::thread::scope(|scope| {
            let workers = (0..threads).map(|_| {
                let (sender, parts) = sync_channel::<LogPart>(QUEUED_PARTS);
                let worker = ReplayWorker::new(self, &relevance, threads);
                (sender, scope.spawn(move || worker.read_all(parts)))
            });
            let (senders, workers): (Vec<_>, Vec<_>) = workers.unzip();
            // The same thread always reads the same part, so that limits have the same effect. A
            // thread that failed receives nothing more; an earlier line may still fail in another.
            let mut receivers = senders.iter().cycle();
            let mut send = |part| drop(receivers.next().map(|it| it.send(part)));
            let mut splitter = LogSplitter::default();
            let read = read(&mut |bytes| {
                if let Some(part) = splitter.push(bytes)? {
                    send(part);
                }
                Ok(())
            });
            let (last, har) = splitter.finish();
            send(last);
            drop(senders);
            let joined = workers.into_iter().map(ScopedJoinHandle::join);
            let totals = joined.map(|it| it.unwrap_or_else(|panic| resume_unwind(panic)));
            (read, har, totals.collect::<Vec<_>>())
        });
        read?;
        let mut all = ReplayTotals::default();
        let mut first_error: Option<ReplayError> = None;
        for totals in totals {
            match totals {
                Ok(totals) => all.merge(totals),
                Err(error)
                    if first_error
                        .as_ref()
                        .is_none_or(|it| error.line() < it.line()) =>
                {
                    first_error = Some(error);
                }
                Err(_) => {}
            }
        }
        match first_error {
            Some(error) => Err(error.into()),
            None => Ok(all.into_report(&relevance, har)?),
        }
    }
}

/// Reads the requests of a log in order, in pieces of any size.
#[derive(Debug, Default)]
pub struct LogReader(LogSplitter);

impl LogReader {
    /// Reads the next piece. Calls `take` with each request, or with the reason why a line is
    /// unreadable. Lines about connections are skipped.
    pub fn push<E: From<ReplayError>>(
        &mut self,
        bytes: &[u8],
        take: &mut dyn FnMut(u64, Result<LoggedRequest, &'static str>) -> Result<(), E>,
    ) -> Result<(), E> {
        let part = self.0.push(bytes)?;
        part.map_or(Ok(()), |part| read_requests(&part, take))
    }

    /// Reads the end of the log.
    pub fn finish<E: From<ReplayError>>(
        self,
        take: &mut dyn FnMut(u64, Result<LoggedRequest, &'static str>) -> Result<(), E>,
    ) -> Result<(), E> {
        read_requests(&self.0.finish().0, take)
    }
}

fn read_requests<E: From<ReplayError>>(
    part: &LogPart,
    take: &mut dyn FnMut(u64, Result<LoggedRequest, &'static str>) -> Result<(), E>,
) -> Result<(), E> {
    part.read(|number, entry| match entry.transpose() {
        Some(request) => take(number, request),
        None => Ok(()),
    })
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
