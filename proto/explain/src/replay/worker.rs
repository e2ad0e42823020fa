//! Compares the requests in some parts of a log.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::super::compared::host_of;
use super::super::request::{ExplainRequest, UrlScheme};
use super::compare::{ReplayComparison, ReplayResult, ReplayedRequest};
use super::lines::{LogPart, LoggedEntry};
use super::logged::LoggedRequest;
use super::relevance::RequestRelevance;
use super::totals::ReplayTotals;
use super::{Replay, ReplayError};

/// Maximum memory for known requests in all threads, in bytes.
const MAX_CACHE_BYTES: usize = 64 << 20;
/// Estimated memory for one known request, excluding its text.
const ENTRY_BYTES: usize = 128;

#[derive(Debug)]
pub(super) struct ReplayWorker<'s> {
    comparison: ReplayComparison<'s>,
    pub(super) relevance: &'s RequestRelevance,
    host: Option<&'s str>,
    pub(super) default_port: u16,
    pub(super) known: BTreeMap<String, ReplayedRequest>,
    known_bytes: usize,
    max_known_bytes: usize,
    totals: ReplayTotals,
}

impl<'s> ReplayWorker<'s> {
    pub(super) fn new(
        replay: &'s Replay<'_>,
        relevance: &'s RequestRelevance,
        threads: usize,
    ) -> Self {
        let comparison = ReplayComparison::new(&replay.old.0, &replay.new.0);
        let default_port = comparison.default_port();
        Self {
            comparison,
            relevance,
            host: replay.host.as_deref(),
            default_port,
            known: BTreeMap::new(),
            known_bytes: 0,
            max_known_bytes: MAX_CACHE_BYTES / threads.max(1),
            totals: ReplayTotals::default(),
        }
    }

    /// Reads parts in the order of the log.
    pub(super) fn read_all(
        mut self,
        parts: impl IntoIterator<Item = LogPart>,
    ) -> Result<ReplayTotals, ReplayError> {
        for part in parts {
            part.read(|number, entry| self.logged(number, entry))?;
        }
        self.totals.groups = self.comparison.finish();
        Ok(self.totals)
    }

    pub(super) fn logged(&mut self, number: u64, logged: LoggedEntry) -> Result<(), ReplayError> {
        let report = &mut self.totals.report;
        let logged = match logged {
            Ok(Some(logged)) => logged,
            Ok(None) => {
                report.connections += 1;
                return Ok(());
            }
            Err(reason) => {
                report.unreadable.record(number, reason);
                return Ok(());
            }
        };
        self.totals.without_query |= logged.without_query;
        self.totals.without_client |= logged.client.is_none();
        let (gateway, route) = (logged.gateway.clone(), logged.route.clone());
        let (gateway, route) = (gateway.as_deref(), route.as_deref());
        let Some(request) = self.request(logged) else {
            let reason = "the line contains no host; set --host";
            self.totals.report.unreadable.record(number, reason);
            return Ok(());
        };
        let key = key(&request, gateway, route);
        let replayed = if let Some(replayed) = self.known.get(&key) {
            *replayed
        } else {
            let replayed = self.comparison.compare(number, &request, gateway, route);
            let line = number;
            let replayed = replayed.map_err(|error| ReplayError::Several { line, error })?;
            self.remember(key, replayed);
            replayed
        };
        let ReplayedRequest {
            result,
            rerouted,
            unrouted,
        } = replayed;
        let report = &mut self.totals.report;
        report.requests += 1;
        report.rerouted += u64::from(rerouted);
        report.unrouted += u64::from(unrouted);
        match result {
            ReplayResult::Same => {}
            ReplayResult::OtherSettings => report.other_settings += 1,
            ReplayResult::OtherProtection => report.other_protection += 1,
            ReplayResult::Unanswered => report.unanswered += 1,
            ReplayResult::Changed(group) => {
                report.changed += 1;
                self.comparison.count(group);
            }
        }
        Ok(())
    }

    fn remember(&mut self, key: String, replayed: ReplayedRequest) {
        self.known_bytes += key.len() + ENTRY_BYTES;
        if self.known_bytes > self.max_known_bytes {
            self.known.clear();
            self.known_bytes = key.len() + ENTRY_BYTES;
        }
        self.known.insert(key, replayed);
    }

    /// Returns `None` if the request has no host.
    pub(super) fn request(&self, mut logged: LoggedRequest) -> Option<ExplainRequest> {
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
        let authority = authority.or_else(|| self.host.map(str::to_owned))?;
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
mod tests {
    use super::super::super::request::HeaderField;
    use super::super::super::tests::{prefix, route, snapshot};
    use super::super::tests::{exact, get, replay, run};
    use super::super::{ReplayConfiguration, parse_log_host};
    use super::*;

    #[test]
    fn port_and_scheme_follow_line_and_configuration() {
        let configuration = ReplayConfiguration::new([snapshot(vec![("*", Vec::new())])]);
        let relevance = RequestRelevance::default();
        let same = replay(&configuration, &configuration, None);
        let worker = ReplayWorker::new(&same, &relevance, 1);
        let url = |authority: &str, port: Option<u16>| {
            let logged = LoggedRequest {
                method: "GET".to_owned(),
                authority: Some(authority.to_owned()),
                port,
                target: "/".to_owned(),
                ..LoggedRequest::default()
            };
            let request = worker.request(logged).unwrap();
            (request.scheme, request.port)
        };
        let http = UrlScheme::Http;
        assert_eq!(url("a.test", None), (http, 80));
        assert_eq!(url("A.test:80", None), (http, 80));
        // Nothing listens on the port of a load balancer.
        assert_eq!(url("a.test:30443", None), (http, 80));
        assert_eq!(url("a.test", Some(8080)), (http, 8080));
        let mut other = snapshot(vec![("*", Vec::new())]);
        other.ports[0].port = 8080;
        let other = ReplayConfiguration::new([other]);
        let empty = ReplayConfiguration::new([]);
        let default_port =
            |old, new| ReplayWorker::new(&replay(old, new, None), &relevance, 1).default_port;
        assert_eq!(default_port(&empty, &other), 8080);
        assert_eq!(default_port(&configuration, &other), 80);
        assert!(parse_log_host("a.test:8080").is_ok());
        for bad in ["", "a b", "u@a", "a/b", "http://a", "a?b", "a:0"] {
            assert!(parse_log_host(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn irrelevant_parts_share_one_explanation() {
        let mut matching = route("q", prefix(""));
        matching.query_params = vec![exact("q", "1")];
        matching.headers = vec![exact("User-Agent", "curl")];
        let configuration = ReplayConfiguration::new([snapshot(vec![("*", vec![matching])])]);
        let relevance = RequestRelevance::new(configuration.0.iter());
        let same = replay(&configuration, &configuration, Some("a.test"));
        let mut worker = ReplayWorker::new(&same, &relevance, 1);
        let mut read = |query: &str| {
            let bytes = get(&format!("/{query}")).into_bytes();
            let part = LogPart::Lines { first: 1, bytes };
            part.read(|number, entry| worker.logged(number, entry))
                .unwrap();
            worker.known.len()
        };
        let known = ["?x=1&q=1", "?q=1", "?q=1&y", "?q=2"].map(&mut read);
        assert_eq!(known, [1, 1, 1, 2]);
        let mut logged = LoggedRequest {
            target: "/?a".to_owned(),
            headers: ["x_y", "cookie", "user-agent"]
                .map(|name| HeaderField {
                    name: name.to_owned(),
                    value: "v".to_owned(),
                })
                .into(),
            ..LoggedRequest::default()
        };
        relevance.reduce(&mut logged);
        let left = logged.headers.iter();
        let left: Vec<(&str, &str)> = left.map(|it| (&*it.name, &*it.value)).collect();
        assert_eq!(left, [("x_y", ""), ("user-agent", "v")]);
        assert_eq!(logged.target, "/");
        let log = get("/?q=2") + &get("/?q=1");
        let report = run(&same, &log, 7).unwrap();
        assert_eq!(
            (report.requests, report.changed, report.unrouted),
            (2, 0, 1)
        );
        assert_eq!(report.notes, Vec::<String>::new());
    }
}
