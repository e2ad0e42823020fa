//! Limits the size of explanations: Gateways may have thousands of routes, and values may be many
//! kilobytes long.

use std::fmt::Write as _;

use super::outcome::{
    CandidateVerdict, ExplainedBackend, ExplainedCandidate, ExplainedFilter, ExplainedOutcome,
    ExplainedTls, Explanation, Omitted,
};

pub(super) const MAX_CANDIDATES: usize = 100;
/// Maximum size of an explanation's JSON in bytes, excluding its copy of the request.
pub const MAX_EXPLANATION_BYTES: usize = 1 << 20;
const MAX_REASONS: usize = 8;
const MAX_PARTS: usize = 16;
const MAX_ENDPOINTS: usize = 100;
const MAX_NOTES: usize = 20;
/// Maximum number of names per sentence.
const MAX_NAMED: usize = 20;
/// Maximum length of a name, or of the reason for a route's verdict.
const MAX_LINE_BYTES: usize = 200;
const MAX_CONDITION_BYTES: usize = 300;
/// Maximum length of a filter's effect, a note, or the reason for a response.
const MAX_TEXT_BYTES: usize = 1000;

/// Routes of a virtual host, up to a limit. Keeps the route that handles the request, then prefers
/// near misses: routes whose path matches.
#[derive(Default)]
pub(super) struct CandidateList {
    taken: Option<(usize, ExplainedCandidate)>,
    near: Vec<(usize, ExplainedCandidate)>,
    far: Vec<(usize, ExplainedCandidate)>,
    seen: usize,
}

impl CandidateList {
    /// Calls `candidate` only if there is room for the route.
    pub(super) fn push(
        &mut self,
        verdict: CandidateVerdict,
        path_matches: bool,
        candidate: impl FnOnce() -> ExplainedCandidate,
    ) {
        let at = self.seen;
        self.seen += 1;
        let list = match verdict {
            CandidateVerdict::Taken => {
                self.taken = Some((at, candidate()));
                return;
            }
            CandidateVerdict::TooLate => &mut self.near,
            CandidateVerdict::NoMatch if path_matches => &mut self.near,
            CandidateVerdict::NoMatch => &mut self.far,
        };
        if list.len() < MAX_CANDIDATES {
            list.push((at, candidate()));
        }
    }

    /// Returns the kept routes in Envoy's order, and the number of omitted routes.
    pub(super) fn finish(self) -> (Vec<ExplainedCandidate>, usize) {
        let Self {
            taken,
            near,
            far,
            seen,
        } = self;
        let kept = taken.into_iter().chain(near).chain(far);
        let mut kept: Vec<_> = kept.take(MAX_CANDIDATES).collect();
        kept.sort_by_key(|(at, _)| *at);
        let omitted = seen - kept.len();
        let candidates = kept.into_iter().map(|(_, candidate)| candidate);
        (candidates.collect(), omitted)
    }
}

pub(super) fn limit(explanation: &mut Explanation) {
    let Explanation {
        gateway,
        request: _,
        listener: _,
        path: _,
        virtual_host: _,
        candidates,
        route: _,
        filters,
        outcome,
        notes: _,
        omitted,
    } = explanation;
    shorten(gateway, MAX_TEXT_BYTES);
    for candidate in candidates {
        limit_candidate(candidate);
    }
    limit_filters(filters, omitted);
    match outcome {
        ExplainedOutcome::Refused { reason }
        | ExplainedOutcome::Answered { reason, .. }
        | ExplainedOutcome::Redirected { reason, .. } => shorten(reason, MAX_TEXT_BYTES),
        ExplainedOutcome::Forwarded {
            backends, retries, ..
        } => {
            shorten(retries, MAX_TEXT_BYTES);
            limit_backends(backends, omitted);
        }
        ExplainedOutcome::Connected { backends } => limit_backends(backends, omitted),
    }
}

pub(super) fn add_notes(explanation: &mut Explanation, notes: impl IntoIterator<Item = String>) {
    for mut note in notes {
        if explanation.notes.len() < MAX_NOTES {
            shorten(&mut note, MAX_TEXT_BYTES);
            explanation.notes.push(note);
        } else {
            explanation.omitted.notes += 1;
        }
    }
}

pub(super) fn join(names: impl ExactSizeIterator<Item = String>, separator: &str) -> String {
    let more = names.len().saturating_sub(MAX_NAMED);
    let shown: Vec<String> = names.take(MAX_NAMED).collect();
    let shown = shown.join(separator);
    if more > 0 {
        format!("{shown} and {more} more")
    } else {
        shown
    }
}

fn limit_candidate(candidate: &mut ExplainedCandidate) {
    let ExplainedCandidate {
        route: _,
        condition,
        verdict: _,
        path_matches: _,
        reasons,
    } = candidate;
    shorten(condition, MAX_CONDITION_BYTES);
    let more = truncate(reasons, MAX_REASONS);
    for reason in reasons.iter_mut() {
        shorten(reason, MAX_LINE_BYTES);
    }
    if more > 0 {
        reasons.push(format!("and {more} more"));
    }
}

fn limit_filters(filters: &mut Vec<ExplainedFilter>, omitted: &mut Omitted) {
    omitted.filters += truncate(filters, MAX_PARTS);
    for ExplainedFilter { filter: _, effect } in filters {
        shorten(effect, MAX_TEXT_BYTES);
    }
}

fn limit_backends(backends: &mut Vec<ExplainedBackend>, omitted: &mut Omitted) {
    omitted.backends += truncate(backends, MAX_PARTS);
    for backend in backends {
        let ExplainedBackend {
            backend: _,
            weight: _,
            refused,
            protocol: _,
            tls,
            balancing,
            endpoints,
            fallback: _,
            filters,
            omitted,
        } = backend;
        if let Some(refused) = refused {
            shorten(refused, MAX_TEXT_BYTES);
        }
        if let Some(ExplainedTls { names, .. }) = tls {
            omitted.names += truncate(names, MAX_PARTS);
            for name in names {
                shorten(name, MAX_LINE_BYTES);
            }
        }
        if let Some(balancing) = balancing {
            shorten(balancing, MAX_TEXT_BYTES);
        }
        omitted.endpoints += truncate(endpoints, MAX_ENDPOINTS);
        limit_filters(filters, omitted);
    }
}

fn truncate<T>(list: &mut Vec<T>, most: usize) -> usize {
    let more = list.len().saturating_sub(most);
    list.truncate(most);
    more
}

pub(super) fn shorten(text: &mut String, most: usize) {
    if text.len() > most {
        let mut end = most;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let more = text.len() - end;
        text.truncate(end);
        // Writing to a String cannot fail.
        let _ = write!(text, " … ({more} more bytes)");
    }
}

#[cfg(test)]
mod tests {
    use sesame_proto::schema::route::Action;
    use sesame_proto::schema::{
        Backend, BackendTls, Endpoint, EndpointSet, Forward, Header, HeaderModifier, Listener,
        PathMatch, Port, Route, RouteTable, Snapshot, StringMatch, VirtualHost, WeightedBackend,
        path_match, string_match,
    };

    use super::super::{ExplainRequest, Explainer, TextDetail, text};
    use super::*;

    const TAKEN_INDEX: usize = 9_000;

    /// Returns 4 KiB of text whose length doubles when it is quoted.
    fn long() -> String {
        "\"".repeat(4096)
    }

    fn headers() -> HeaderModifier {
        let header = |i: usize| Header {
            name: format!("x-{i}"),
            value: long(),
            parts: Vec::new(),
        };
        HeaderModifier {
            set: (0..16).map(header).collect(),
            ..HeaderModifier::default()
        }
    }

    fn route(at: usize) -> Route {
        let header = |i: usize| StringMatch {
            name: format!("x-{i}"),
            kind: Some(string_match::Kind::Exact(long())),
        };
        let is_taken = at == TAKEN_INDEX;
        let conditions = match at {
            TAKEN_INDEX => 0..0,
            0..200 => 0..16,
            _ => 15..16,
        };
        let backends = (0..64).map(|i| WeightedBackend {
            backend: format!("Service/default/b{i}/80"),
            weight: 1,
            request_headers: Some(Box::new(headers())),
            response_headers: Some(Box::new(headers())),
            ..WeightedBackend::default()
        });
        Route {
            name: format!(
                "HTTPRoute/default/{}{at}/rules/0/matches/0",
                "n.".repeat(120)
            ),
            path: Some(PathMatch {
                kind: Some(path_match::Kind::Prefix("/a".to_owned())),
            }),
            headers: conditions.map(header).collect(),
            request_headers: is_taken.then(|| Box::new(headers())),
            response_headers: is_taken.then(|| Box::new(headers())),
            action: is_taken.then(|| {
                Action::Forward(Forward {
                    backends: backends.collect(),
                    ..Forward::default()
                })
            }),
            ..Route::default()
        }
    }

    fn snapshot() -> Snapshot {
        let backend = |i: usize| Backend {
            name: format!("Service/default/b{i}/80"),
            endpoints: "all".to_owned(),
            tls: Some(Box::new(BackendTls {
                dns_names: vec![long(); 64],
                ..BackendTls::default()
            })),
            ..Backend::default()
        };
        let endpoint = Endpoint {
            address: "2001:db8:1111:2222:3333:4444:5555:6666".to_owned(),
            port: 8080,
            ..Endpoint::default()
        };
        Snapshot {
            gateway: "Gateway/default/edge".to_owned(),
            ports: vec![Port {
                port: 80,
                listeners: vec![Listener {
                    name: "Gateway/default/edge/listeners/http".to_owned(),
                    route_table: "http/80".to_owned(),
                    ..Listener::default()
                }],
                ..Port::default()
            }],
            route_tables: vec![RouteTable {
                name: "http/80".to_owned(),
                virtual_hosts: vec![VirtualHost {
                    domain: "*".to_owned(),
                    routes: (0..10_000).map(route).collect(),
                    ..VirtualHost::default()
                }],
            }],
            backends: (0..64).map(backend).collect(),
            endpoints: vec![EndpointSet {
                name: "all".to_owned(),
                endpoints: vec![endpoint; 5_000],
                ..EndpointSet::default()
            }],
            ..Snapshot::default()
        }
    }

    #[test]
    fn explanation_of_ten_thousand_routes_is_bounded() {
        let headers: Vec<String> = (0..16).map(|i| format!("x-{i}: no")).collect();
        let request = ExplainRequest::parse("GET", "http://a.test/a", &headers, None).unwrap();
        let mut explanation = Explainer::new(&snapshot()).explain(&request);
        explanation.add_notes((0..10_000).map(|_| long()));
        let json = serde_json::to_string_pretty(&explanation).unwrap();
        assert!(json.len() < MAX_EXPLANATION_BYTES, "{} bytes", json.len());
        let output = text(&explanation, TextDetail::AllRoutes);
        assert!(
            output.len() < MAX_EXPLANATION_BYTES,
            "{} bytes",
            output.len()
        );

        let taken = explanation.route.as_ref().unwrap();
        let kept = explanation.candidates.last().unwrap();
        assert_eq!(kept.route, taken.name, "the route is kept");
        assert_eq!(explanation.candidates.len(), MAX_CANDIDATES);
        let value = serde_json::to_value(&explanation).unwrap();
        assert_eq!(
            value["omitted"],
            serde_json::json!({"candidates": 9_900, "backends": 48, "notes": 9_980})
        );
        assert_eq!(
            value["outcome"]["backends"][0]["omitted"],
            serde_json::json!({"endpoints": 4_900, "names": 48})
        );
        for expected in [
            "9900 more routes",
            "48 more backends",
            "9980 more notes",
            "5000 endpoints: ",
            "and 8 more\n",
        ] {
            assert!(output.contains(expected), "{expected}");
        }
        let back: Explanation = serde_json::from_value(value).unwrap();
        assert_eq!(back, explanation);
    }

    #[test]
    fn candidates_with_other_paths_give_way() {
        let mut list = CandidateList::default();
        let candidate = |verdict, path_matches| ExplainedCandidate {
            route: String::new(),
            condition: String::new(),
            verdict,
            path_matches,
            reasons: Vec::new(),
        };
        let no = CandidateVerdict::NoMatch;
        for at in 0..3 * MAX_CANDIDATES {
            let near = at >= 2 * MAX_CANDIDATES + 10;
            list.push(no, near, || candidate(no, near));
        }
        let (kept, omitted) = list.finish();
        assert_eq!(kept.iter().filter(|it| it.path_matches).count(), 90);
        assert_eq!((kept.len(), omitted), (MAX_CANDIDATES, 200));
    }

    #[test]
    fn small_explanation_omits_nothing() {
        let request = ExplainRequest::parse("GET", "http://a.test/", &[] as &[&str], None);
        let explanation = Explainer::new(&Snapshot::default()).explain(&request.unwrap());
        let json = serde_json::to_value(&explanation).unwrap();
        assert_eq!(json.get("omitted"), None);
    }
}
