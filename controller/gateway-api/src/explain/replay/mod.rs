//! Compares how two configurations handle the requests of an access log, without sending them.
//!
//! Reads a log in pieces of any size. Memory is bounded, whatever the log contains: equal requests
//! are explained once, as long as the cache has room. A report never contains header values or
//! queries, which may be secrets.

mod compare;
mod decide;
mod har;
mod lines;
mod logged;
mod relevance;
mod report;
mod text_lines;

use std::collections::BTreeMap;
use std::net::IpAddr;

use sesame_proto::schema::Snapshot;

use self::compare::{ReplayComparison, ReplayResult, ReplayedRequest};
use self::lines::{LineSplitter, MAX_HAR_BYTES};
use self::logged::LoggedRequest;
use self::relevance::RequestRelevance;
use self::report::unreadable_text;
pub use self::report::{ReplayReport, ReplayedGroup, UnreadableLine, UnreadableLines, replay_text};
use super::ExplainError;
use super::compared::host_of;
use super::request::{ExplainRequest, UrlScheme};

/// Maximum memory for known requests, in bytes.
const MAX_CACHE_BYTES: usize = 64 << 20;
/// Estimated memory for one known request, excluding its text.
const ENTRY_BYTES: usize = 128;
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
    /// No request reaches a listener.
    #[error("{0} requests: none gets a response from either configuration; check the log's ports")]
    Unanswered(u64),
}

#[derive(Debug)]
enum LogInput {
    /// The first bytes, until the format is known.
    Start(Vec<u8>),
    Lines(LineSplitter),
    Har(Vec<u8>),
}

/// Compares two configurations with the requests of one log.
#[derive(Debug)]
pub struct Replay<'s> {
    comparison: ReplayComparison<'s>,
    relevance: RequestRelevance,
    host: Option<String>,
    default_port: u16,
    input: LogInput,
    known: BTreeMap<String, ReplayedRequest>,
    known_bytes: usize,
    without_query: bool,
    report: ReplayReport,
}

impl<'s> Replay<'s> {
    /// Starts a comparison. `host` is the host of lines without a host.
    pub fn new(
        old: &'s ReplayConfiguration,
        new: &'s ReplayConfiguration,
        host: Option<String>,
    ) -> Self {
        let comparison = ReplayComparison::new(&old.0, &new.0);
        let default_port = comparison.default_port();
        Self {
            comparison,
            relevance: RequestRelevance::new(old.0.iter().chain(&new.0)),
            host,
            default_port,
            input: LogInput::Start(Vec::new()),
            known: BTreeMap::new(),
            known_bytes: 0,
            without_query: false,
            report: ReplayReport::default(),
        }
    }

    /// Reads the next part of the log.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), ReplayError> {
        match &mut self.input {
            LogInput::Start(start) => {
                start.extend_from_slice(bytes);
                let Some(har) = lines::is_har(start) else {
                    return Ok(());
                };
                let start = std::mem::take(start);
                self.input = if har {
                    LogInput::Har(Vec::new())
                } else {
                    LogInput::Lines(LineSplitter::default())
                };
                self.push(&start)
            }
            LogInput::Lines(splitter) => {
                let mut splitter = std::mem::take(splitter);
                let pushed = splitter.push(bytes, |number, line| self.line(number, line));
                self.input = LogInput::Lines(splitter);
                pushed
            }
            LogInput::Har(document) => {
                if document.len() + bytes.len() > MAX_HAR_BYTES {
                    return Err(ReplayError::TooLarge);
                }
                document.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Ends the log. Fails if the comparison says nothing, because it read or reached nothing.
    pub fn finish(mut self) -> Result<ReplayReport, ReplayError> {
        let input = std::mem::replace(&mut self.input, LogInput::Start(Vec::new()));
        let har = matches!(input, LogInput::Har(_));
        match input {
            LogInput::Start(start) => {
                let mut splitter = LineSplitter::default();
                splitter.push(&start, |number, line| self.line(number, line))?;
                splitter.finish(|number, line| self.line(number, line))?;
            }
            LogInput::Lines(mut splitter) => {
                splitter.finish(|number, line| self.line(number, line))?;
            }
            LogInput::Har(document) => {
                // The original error may contain a value.
                let requests = har::requests(&document).map_err(|error| ReplayError::Har {
                    line: error.line(),
                    column: error.column(),
                })?;
                for (at, request) in (1_u64..).zip(requests) {
                    self.logged(at, request.map(Some))?;
                }
            }
        }
        let mut report = self.report;
        if report.requests == 0 {
            let unreadable = match report.unreadable.count {
                0 => String::new(),
                _ => format!("; {}", unreadable_text(&report.unreadable)),
            };
            return Err(ReplayError::NoRequest(unreadable));
        }
        if report.unanswered == report.requests {
            return Err(ReplayError::Unanswered(report.requests));
        }
        report.list(self.comparison.finish());
        report.notes = self.relevance.notes(self.without_query, har);
        Ok(report)
    }

    fn line(&mut self, number: u64, line: Option<&[u8]>) -> Result<(), ReplayError> {
        let Some(line) = line else {
            return self.logged(number, Err("the line is longer than 32768 bytes"));
        };
        let Ok(line) = std::str::from_utf8(line) else {
            return self.logged(number, Err("the line is not UTF-8 text"));
        };
        let line = line.trim_ascii();
        let request = match line.as_bytes().first() {
            None => return Ok(()),
            Some(b'{') => logged::sesame(line),
            Some(b'[') => text_lines::envoy(line).map(Some),
            Some(_) => text_lines::combined(line).map(Some),
        };
        self.logged(number, request)
    }

    fn logged(
        &mut self,
        number: u64,
        logged: Result<Option<LoggedRequest>, &'static str>,
    ) -> Result<(), ReplayError> {
        let logged = match logged {
            Ok(Some(logged)) => logged,
            Ok(None) => {
                self.report.connections += 1;
                return Ok(());
            }
            Err(reason) => {
                self.report.unreadable.record(number, reason);
                return Ok(());
            }
        };
        self.without_query |= logged.without_query;
        let (gateway, route) = (logged.gateway.clone(), logged.route.clone());
        let (gateway, route) = (gateway.as_deref(), route.as_deref());
        let Some(request) = self.request(logged) else {
            let reason = "the line contains no host; set --host";
            self.report.unreadable.record(number, reason);
            return Ok(());
        };
        let key = key(&request, gateway, route);
        let replayed = if let Some(replayed) = self.known.get(&key) {
            *replayed
        } else {
            let replayed = self.comparison.compare(&request, gateway, route);
            let line = number;
            let replayed = replayed.map_err(|error| ReplayError::Several { line, error })?;
            self.remember(key, replayed);
            replayed
        };
        let ReplayedRequest { result, rerouted } = replayed;
        self.report.requests += 1;
        self.report.rerouted += u64::from(rerouted);
        match result {
            ReplayResult::Same => {}
            ReplayResult::Unanswered => self.report.unanswered += 1,
            ReplayResult::Changed(group) => {
                self.report.changed += 1;
                self.comparison.count(group);
            }
        }
        Ok(())
    }

    fn remember(&mut self, key: String, replayed: ReplayedRequest) {
        self.known_bytes += key.len() + ENTRY_BYTES;
        if self.known_bytes > MAX_CACHE_BYTES {
            self.known.clear();
            self.known_bytes = key.len() + ENTRY_BYTES;
        }
        self.known.insert(key, replayed);
    }

    /// Returns `None` if the request has no host.
    fn request(&self, mut logged: LoggedRequest) -> Option<ExplainRequest> {
        self.relevance.reduce(&mut logged);
        let LoggedRequest {
            method,
            scheme,
            authority,
            port,
            target,
            headers,
            server_name,
            client,
            client_certificate,
            gateway: _,
            route: _,
            without_query: _,
        } = logged;
        let authority = authority.or_else(|| self.host.clone())?;
        let authority = authority.to_ascii_lowercase();
        let host = host_of(&authority);
        let own_port = authority
            .strip_prefix(&*host)
            .and_then(|it| it.strip_prefix(':'));
        let own_port = own_port.and_then(|it| it.parse::<u16>().ok());
        let port = port
            .or_else(|| own_port.filter(|port| self.comparison.listens(*port)))
            .unwrap_or(self.default_port);
        let scheme = scheme.unwrap_or_else(|| self.scheme(port));
        let host = host.trim_matches(['[', ']']);
        let is_name = host.parse::<IpAddr>().is_err();
        let sni = server_name.or_else(|| is_name.then(|| host.to_owned()));
        Some(ExplainRequest {
            method,
            scheme,
            authority,
            port,
            path: target,
            headers,
            sni: sni.filter(|_| scheme == UrlScheme::Https),
            client_certificate,
            client,
        })
    }

    /// Returns the scheme that the old configuration expects, or else the new one.
    fn scheme(&self, port: u16) -> UrlScheme {
        let ReplayComparison { old, new, .. } = &self.comparison;
        let scheme = old.scheme(port).or_else(|| new.scheme(port));
        scheme.unwrap_or(UrlScheme::Http)
    }
}

/// Equal keys mean equal requests. None of the parts contains a newline.
fn key(request: &ExplainRequest, gateway: Option<&str>, route: Option<&str>) -> String {
    let ExplainRequest {
        method,
        scheme,
        authority,
        port,
        path,
        headers,
        sni,
        client_certificate,
        client,
    } = request;
    let (scheme, port) = (scheme.as_str(), port.to_string());
    let certificate = if *client_certificate { "1" } else { "0" };
    let client = client.map(|it| it.to_string()).unwrap_or_default();
    let sni = sni.as_deref().unwrap_or_default();
    let [gateway, route] = [gateway, route].map(Option::unwrap_or_default);
    let fixed: [&str; 10] = [
        path,
        authority,
        method,
        scheme,
        &port,
        certificate,
        &client,
        sni,
        gateway,
        route,
    ];
    let mut key = fixed.join("\n");
    for header in headers {
        key.extend(["\n", &header.name, "\n", &header.value]);
    }
    key
}

#[cfg(test)]
mod tests;
