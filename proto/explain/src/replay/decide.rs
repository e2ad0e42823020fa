//! Decides which route handles a request, like `Explainer`, but with an index.
//!
//! Explaining a request compares all routes of its host. A log has a million requests, so this
//! finds the few routes whose path may match, and caches the host of each name.

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::canonical_path::upper_escapes;
use sesame_proto::schema::{
    Backend, Edge, ExternalAuth, RequestFilters, Route, Snapshot, VirtualHost, path_match,
    route::Action,
};

use super::super::backends;
use super::super::chain::{self, Chain};
use super::super::compared::{self, Compared, Prepared};
use super::super::hosts;
use super::super::outcome::Explanation;
use super::super::request::{ExplainRequest, UrlScheme};
use super::super::routes::{self, Winner};
use super::super::{Explainer, protections, refusal};

/// Clients choose hostnames, so the cache is emptied once it has this many.
const MAX_PLACES: usize = 10_000;

/// How a request is handled. Requests with the same decision get the same response, except for
/// values that depend on the request, such as a rewritten path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestDecision {
    /// The connection is closed without a response.
    Closed,
    /// Envoy forwards the connection's bytes.
    Forwarded,
    /// Envoy responds before it selects a virtual host.
    Early,
    NoHost,
    Routed(RoutedDecision),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RoutedDecision {
    port: u16,
    /// Index in [`RequestDecider::hosts`].
    host: usize,
    /// Index of the route in its virtual host.
    route: Option<usize>,
    /// The route only matches as a CORS preflight.
    preflight: bool,
    /// The request has the headers of a CORS preflight.
    cors: bool,
    /// A filter rejects the client's address or origin.
    refused: bool,
}

/// Everything that affects the response, except for the request. Equal forms handle all requests in
/// the same way.
#[derive(Debug, PartialEq)]
pub(super) struct DecisionForm<'s> {
    edge: Edge,
    domain: &'s str,
    external_auth: &'s [ExternalAuth],
    filters: Option<&'s RequestFilters>,
    route: Option<&'s Route>,
    backends: Vec<(Option<&'s Backend>, bool)>,
    preflight: bool,
    cors: bool,
    refused: bool,
}

#[derive(Debug)]
pub(super) struct RequestDecider<'s> {
    explainer: Explainer<'s>,
    places: BTreeMap<ConnectionKey, ConnectionPlace>,
    hosts: Vec<HostRoutes<'s>>,
    /// Indexes in `hosts` by route table and domain.
    known: BTreeMap<(&'s str, &'s str), usize>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ConnectionKey {
    port: u16,
    tls: bool,
    sni: Option<String>,
    certificate: bool,
    host: String,
}

#[derive(Clone, Copy, Debug)]
enum ConnectionPlace {
    Closed,
    Forwarded,
    NoHost,
    Host(usize),
}

impl<'s> RequestDecider<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        Self {
            explainer: Explainer::new(snapshot),
            places: BTreeMap::new(),
            hosts: Vec::new(),
            known: BTreeMap::new(),
        }
    }

    pub(super) fn snapshot(&self) -> &'s Snapshot {
        self.explainer.snapshot
    }

    pub(super) fn decide(&mut self, request: &ExplainRequest) -> RequestDecision {
        let place = self.place(request);
        match place {
            ConnectionPlace::Closed => return RequestDecision::Closed,
            ConnectionPlace::Forwarded => return RequestDecision::Forwarded,
            ConnectionPlace::NoHost | ConnectionPlace::Host(_) => {}
        }
        let edge = self.snapshot().edge_on(request.port.into());
        let Prepared::Compared(compared) = compared::prepare(request, edge) else {
            return RequestDecision::Early;
        };
        match place {
            ConnectionPlace::Host(host) => self.route(request.port, host, &compared),
            _ => RequestDecision::NoHost,
        }
    }

    fn place(&mut self, request: &ExplainRequest) -> ConnectionPlace {
        let key = ConnectionKey {
            port: request.port,
            tls: request.scheme == UrlScheme::Https,
            sni: request.sni.clone(),
            certificate: request.client_certificate,
            host: compared::host_of(&request.authority),
        };
        if let Some(place) = self.places.get(&key) {
            return *place;
        }
        let place = self.find_place(request, &key.host);
        if self.places.len() >= MAX_PLACES {
            self.places.clear();
        }
        self.places.insert(key, place);
        place
    }

    fn find_place(&mut self, request: &ExplainRequest, host: &str) -> ConnectionPlace {
        let snapshot = self.snapshot();
        let table = match chain::find(snapshot, request).map(|found| found.chain) {
            Err(_) => return ConnectionPlace::Closed,
            Ok(Chain::Connections(_)) => return ConnectionPlace::Forwarded,
            Ok(Chain::Requests(table)) => table,
        };
        let table = snapshot.route_tables.iter().find(|it| it.name == table);
        let Some((table, host)) = table.and_then(|it| Some((it, hosts::find(it, host)?))) else {
            return ConnectionPlace::NoHost;
        };
        let key = (table.name.as_str(), host.domain.as_str());
        let at = *self.known.entry(key).or_insert_with(|| {
            self.hosts.push(HostRoutes::new(host));
            self.hosts.len() - 1
        });
        ConnectionPlace::Host(at)
    }

    fn route(&mut self, port: u16, at: usize, compared: &Compared) -> RequestDecision {
        let snapshot = self.snapshot();
        let Some(host) = self.hosts.get(at) else {
            return RequestDecision::NoHost;
        };
        let translated = compared.grpc_web.then(|| compared.translated());
        let mut winner = None;
        for index in host.candidates(&compared.path) {
            let Some(route) = host.host.routes.get(index) else {
                continue;
            };
            let filters = routes::filters(snapshot, host.host, Some(route));
            let translated = translated.as_ref();
            let translated = translated.filter(|_| filters.is_some_and(|it| it.grpc_web));
            let request = translated.unwrap_or(compared);
            let expressions = &mut self.explainer.expressions;
            if let (Some(preflight), _) = routes::compare(snapshot, route, request, expressions) {
                winner = Some((index, preflight, route));
                break;
            }
        }
        let filters = routes::filters(snapshot, host.host, winner.map(|(_, _, route)| route));
        let cors = compared.method == "OPTIONS"
            && compared.filled("origin").is_some()
            && compared.filled("access-control-request-method").is_some();
        RequestDecision::Routed(RoutedDecision {
            port,
            host: at,
            route: winner.map(|(index, _, _)| index),
            preflight: winner.is_some_and(|(_, preflight, _)| preflight),
            cors,
            refused: refusal(filters, compared).is_some(),
        })
    }

    fn winner(&self, decision: RoutedDecision) -> Option<(&'s VirtualHost, Option<Winner<'s>>)> {
        let host = self.hosts.get(decision.host)?.host;
        let route = decision.route.and_then(|at| host.routes.get(at));
        let preflight = decision.preflight;
        Some((host, route.map(|route| Winner { route, preflight })))
    }

    pub(super) fn route_name(&self, decision: RequestDecision) -> Option<&'s str> {
        let RequestDecision::Routed(routed) = decision else {
            return None;
        };
        let (_, winner) = self.winner(routed)?;
        Some(winner?.route.name.as_str())
    }

    /// Returns `None` unless the decision depends only on the form.
    pub(super) fn form(&self, decision: RequestDecision) -> Option<DecisionForm<'s>> {
        let RequestDecision::Routed(routed) = decision else {
            return None;
        };
        let snapshot = self.snapshot();
        let (host, winner) = self.winner(routed)?;
        let route = winner.map(|it| it.route);
        let shares = match route.and_then(|it| it.action.as_ref()) {
            Some(Action::Forward(forward)) => forward.backends.as_slice(),
            _ => &[],
        };
        let backends = shares.iter().map(|share| {
            let mut backends = snapshot.backends.iter();
            let backend = backends.find(|it| it.name == share.backend);
            (backend, backends::is_refused(snapshot, share))
        });
        Some(DecisionForm {
            edge: snapshot.edge_on(routed.port.into()),
            domain: &host.domain,
            external_auth: &host.external_auth,
            filters: routes::filters(snapshot, host, route),
            route,
            backends: backends.collect(),
            preflight: routed.preflight,
            cors: routed.cors,
            refused: routed.refused,
        })
    }

    /// Returns what protects requests with a decision. Empty unless they reach a virtual host.
    pub(super) fn protections(&self, decision: RequestDecision) -> BTreeSet<String> {
        let RequestDecision::Routed(routed) = decision else {
            return BTreeSet::new();
        };
        let winner = self.winner(routed).map(|(host, winner)| {
            let route = winner.map(|it| it.route);
            protections::of_route(self.snapshot(), host, route)
        });
        winner.unwrap_or_default()
    }

    /// Explains a request without the values of its headers and query. `decision` must be the
    /// decision on this request.
    pub(super) fn explain(
        &mut self,
        request: &ExplainRequest,
        decision: RequestDecision,
    ) -> Explanation {
        let path = request.path.split('?').next().unwrap_or_default();
        let request = ExplainRequest {
            path: path.to_owned(),
            ..request.clone()
        };
        let edge = self.snapshot().edge_on(request.port.into());
        if let RequestDecision::Routed(routed) = decision
            && let Some((host, winner)) = self.winner(routed)
            && let Prepared::Compared(compared) = compared::prepare(&request, edge)
        {
            let compared = Compared {
                redacted: true,
                ..compared
            };
            let mut explanation = Explanation::new(self.snapshot(), &request);
            self.explainer
                .respond(host, winner, &compared, &mut explanation);
            return explanation;
        }
        // No other decision compares routes.
        self.explainer.explain_in_full(&request)
    }
}

/// A virtual host's routes by path. Routes that rendering omits are not included.
#[derive(Debug)]
struct HostRoutes<'s> {
    host: &'s VirtualHost,
    exact: BTreeMap<String, Vec<usize>>,
    /// Without a trailing slash.
    prefixes: BTreeMap<String, Vec<usize>>,
    longest_prefix: usize,
    /// Routes whose path is compared in another way.
    others: Vec<usize>,
}

impl<'s> HostRoutes<'s> {
    fn new(host: &'s VirtualHost) -> Self {
        let mut index = Self {
            host,
            exact: BTreeMap::new(),
            prefixes: BTreeMap::new(),
            longest_prefix: 0,
            others: Vec::new(),
        };
        let mut cost = 0;
        for (at, route) in host.routes.iter().enumerate() {
            if routes::left_out(route, &mut cost).is_some() {
                continue;
            }
            match route.path.as_ref().and_then(|it| it.kind.as_ref()) {
                Some(path_match::Kind::Exact(path)) => {
                    let path = upper_escapes(path).into_owned();
                    index.exact.entry(path).or_default().push(at);
                }
                Some(path_match::Kind::Prefix(prefix)) => {
                    let prefix = upper_escapes(prefix.trim_end_matches('/')).into_owned();
                    index.longest_prefix = index.longest_prefix.max(prefix.len());
                    index.prefixes.entry(prefix).or_default().push(at);
                }
                Some(path_match::Kind::TextPrefix(_) | path_match::Kind::Regex(_)) | None => {
                    index.others.push(at);
                }
            }
        }
        index
    }

    /// Returns the routes whose path may match, in Envoy's order.
    fn candidates(&self, path: &str) -> Vec<usize> {
        let path = upper_escapes(path);
        let mut found = self.others.clone();
        found.extend(self.exact.get(&*path).into_iter().flatten());
        let slashes = path.match_indices('/').map(|(at, _)| at);
        let ends = slashes.chain([path.len()]);
        for end in ends.take_while(|end| *end <= self.longest_prefix) {
            let prefix = path.get(..end).unwrap_or_default();
            found.extend(self.prefixes.get(prefix).into_iter().flatten());
        }
        found.sort_unstable();
        found
    }
}

#[cfg(test)]
mod tests {
    use sesame_proto::schema::{PathMatch, StringMatch, string_match};

    use super::super::super::changes::in_words;
    use super::super::super::tests::{prefix, route, snapshot};
    use super::*;

    fn kind(kind: path_match::Kind) -> PathMatch {
        PathMatch { kind: Some(kind) }
    }

    fn exact(name: &str, value: &str) -> StringMatch {
        StringMatch {
            name: name.to_owned(),
            kind: Some(string_match::Kind::Exact(value.to_owned())),
        }
    }

    fn routes() -> Vec<Route> {
        let mut with_header = route("header", prefix("/b"));
        with_header.headers = vec![exact("x-env", "test")];
        let mut with_query = route("query", prefix("/b"));
        with_query.query_params = vec![exact("q", "1")];
        let mut with_method = route("method", prefix("/b"));
        with_method.method = "PUT".to_owned();
        let bad = route("bad", prefix("//"));
        vec![
            route("exact", kind(path_match::Kind::Exact("/b/c%2a".to_owned()))),
            route(
                "regex",
                kind(path_match::Kind::Regex("/b/[0-9]+".to_owned())),
            ),
            route("deep", prefix("/b/c/")),
            with_header,
            with_query,
            with_method,
            bad,
            route("text", kind(path_match::Kind::TextPrefix("/bc".to_owned()))),
            route("escaped", prefix("/caf%c3%a9")),
            route("b", prefix("/b")),
        ]
    }

    #[test]
    fn decisions_equal_explanations() {
        let mut all = routes();
        all.push(Route {
            path: None,
            ..route("all", prefix(""))
        });
        let snapshots = [
            snapshot(vec![
                ("a.test", routes()),
                ("*.a.test", all.clone()),
                ("*", Vec::new()),
            ]),
            snapshot(vec![("a.test", all)]),
        ];
        let paths = [
            "/",
            "/b",
            "/b/",
            "/bc",
            "/b/c",
            "/b/c%2A",
            "/b/c%2a",
            "/b/c/d",
            "/b/12",
            "/b//c/../c",
            "/caf%C3%A9/x",
            "/caf%c3%a9",
            "/x",
            "/b%2fc",
            "/b?q=1",
            "/b?q=2",
            "/%00",
            "/b/c?q=1",
        ];
        for snapshot in &snapshots {
            let mut decider = RequestDecider::new(snapshot);
            for host in ["a.test", "A.test:80", "x.a.test", "b.test", "a,b"] {
                for path in paths {
                    for (method, headers) in [("GET", &[][..]), ("PUT", &["x-env: test"][..])] {
                        let url = format!("http://x{path}");
                        let mut request =
                            ExplainRequest::parse(method, &url, headers, None).unwrap();
                        request.authority = host.to_owned();
                        let decision = decider.decide(&request);
                        let found = decider.explain(&request, decision);
                        let expected = Explainer::new(snapshot).explain(&request);
                        assert_eq!(found.route, expected.route, "{request} {headers:?}");
                        let words = in_words(&expected).replace("?q=1", "").replace("?q=2", "");
                        assert_eq!(in_words(&found), words, "{request} {headers:?}");
                    }
                }
            }
        }
    }
}
