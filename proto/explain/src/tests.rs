use sesame_proto::schema::route::Action;
use sesame_proto::schema::{Backend, L4Route};
use sesame_proto::schema::{
    Cors, CorsOrigin, DirectResponse, Endpoint, EndpointSet, Forward, Listener, PathMatch,
    PathModifier, Port, Protocol, Redirect, Route, RouteTable, StringMatch, TlsTermination,
    UrlRewrite, VirtualHost, WeightedBackend, cors_origin, path_match, path_modifier, string_match,
};

use super::*;

pub(super) const SHOP: &str = "Service/default/shop/80";

pub(super) fn prefix(path: &str) -> PathMatch {
    PathMatch {
        kind: Some(path_match::Kind::Prefix(path.to_owned())),
    }
}

pub(super) fn route(name: &str, path: PathMatch) -> Route {
    Route {
        name: format!("HTTPRoute/default/{name}/rules/0/matches/0"),
        path: Some(path),
        action: Some(Action::Forward(Forward {
            backends: vec![WeightedBackend {
                backend: SHOP.to_owned(),
                weight: 1,
                ..WeightedBackend::default()
            }],
            ..Forward::default()
        })),
        ..Route::default()
    }
}

pub(super) fn listener(name: &str, protocol: Protocol, hostname: &str, table: &str) -> Listener {
    Listener {
        name: format!("Gateway/default/edge/listeners/{name}"),
        protocol: protocol.into(),
        hostname: hostname.to_owned(),
        route_table: table.to_owned(),
        ..Listener::default()
    }
}

pub(super) fn snapshot(hosts: Vec<(&str, Vec<Route>)>) -> Snapshot {
    let hosts = hosts.into_iter();
    Snapshot {
        gateway: "Gateway/default/edge".to_owned(),
        ports: vec![Port {
            port: 80,
            listeners: vec![listener("http", Protocol::Http, "", "http/80")],
            ..Port::default()
        }],
        route_tables: vec![RouteTable {
            name: "http/80".to_owned(),
            virtual_hosts: hosts
                .map(|(domain, routes)| VirtualHost {
                    domain: domain.to_owned(),
                    routes,
                    ..VirtualHost::default()
                })
                .collect(),
        }],
        backends: vec![Backend {
            name: SHOP.to_owned(),
            endpoints: SHOP.to_owned(),
            ..Backend::default()
        }],
        endpoints: vec![EndpointSet {
            name: SHOP.to_owned(),
            endpoints: vec![Endpoint {
                address: "192.0.2.1".to_owned(),
                port: 8080,
                ..Endpoint::default()
            }],
            ..EndpointSet::default()
        }],
        ..Snapshot::default()
    }
}

fn ask(snapshot: &Snapshot, method: &str, url: &str, headers: &[&str]) -> Explanation {
    let request = ExplainRequest::parse(method, url, headers, None).unwrap();
    Explainer::new(snapshot).explain(&request)
}

fn taken(explanation: &Explanation) -> Option<&str> {
    let route = explanation.route.as_ref()?;
    route.object.rsplit('/').next()
}

fn status(explanation: &Explanation) -> u32 {
    match &explanation.outcome {
        ExplainedOutcome::Answered { status, .. } | ExplainedOutcome::Redirected { status, .. } => {
            *status
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn first_matching_route_wins_and_others_explain_why() {
    let mut with_header = route("headers", prefix("/b"));
    with_header.headers = vec![StringMatch {
        name: "x-env".to_owned(),
        kind: Some(string_match::Kind::Exact("test".to_owned())),
    }];
    let routes = vec![
        with_header,
        route("shop", prefix("/shop")),
        route("b", prefix("/b")),
        route("all", prefix("")),
    ];
    let snapshot = snapshot(vec![("*", routes)]);
    let explanation = ask(&snapshot, "GET", "http://a.test/b//c?q=1", &["x-env: prod"]);
    assert_eq!(taken(&explanation), Some("b"));
    assert_eq!(explanation.path.as_deref(), Some("/b/c?q=1"));
    let reasons: Vec<String> = explanation
        .candidates
        .iter()
        .map(|it| it.reasons.join("; "))
        .collect();
    assert_eq!(
        reasons,
        [
            "header x-env is \"prod\", not \"test\"",
            "the path /b/c does not have the prefix /shop",
            "",
            "HTTPRoute/default/b/rules/0/matches/0 takes precedence: it matches a longer path",
        ]
    );
    let ExplainedOutcome::Forwarded { backends, path, .. } = &explanation.outcome else {
        panic!("{:?}", explanation.outcome);
    };
    assert_eq!(path, "/b/c?q=1");
    assert_eq!(backends[0].endpoints, ["192.0.2.1:8080"]);
    let output = text(&explanation, TextDetail::Brief);
    assert!(
        output.contains("TAKEN   HTTPRoute/default/b/rules/0/matches/0"),
        "{output}"
    );
    let json = serde_json::to_value(&explanation).unwrap();
    assert_eq!(json["route"]["match"], 0);
    assert_eq!(json["outcome"]["kind"], "forwarded");
    let back: Explanation = serde_json::from_value(json).unwrap();
    assert_eq!(back, explanation);
}

#[test]
fn answers_without_route_name_missing_part() {
    let snapshot = snapshot(vec![("a.test", vec![route("a", prefix("/a"))])]);
    for (url, expected, word) in [
        ("http://b.test/", 404, "no hostname"),
        ("http://a.test/b", 404, "no route matches"),
        ("http://a.test/%2e%00", 400, "NUL"),
        ("http://a.test/a%2Fb", 307, "escaped slash"),
    ] {
        let explanation = ask(&snapshot, "GET", url, &[]);
        assert_eq!(status(&explanation), expected, "{url}");
        assert_eq!(explanation.route, None, "{url}");
        let output = text(&explanation, TextDetail::Brief);
        assert!(output.contains(word), "{url}: {output}");
    }
    for (url, word) in [
        ("http://a.test:81/", "nothing listens on port 81"),
        ("https://a.test:80/", "expects plaintext"),
    ] {
        let explanation = ask(&snapshot, "GET", url, &[]);
        let ExplainedOutcome::Refused { reason } = &explanation.outcome else {
            panic!("{url}: {:?}", explanation.outcome);
        };
        assert!(reason.contains(word), "{url}: {reason}");
    }
}

#[test]
fn a_redirect_names_its_location() {
    let redirect = |redirect: Redirect| Route {
        action: Some(Action::Redirect(redirect)),
        ..route("moved", prefix("/old"))
    };
    let to_path = |kind| Some(PathModifier { kind: Some(kind) });
    let cases = [
        (
            Redirect {
                scheme: "https".to_owned(),
                status: 301,
                implied_port: 443,
                ..Redirect::default()
            },
            "https://x.a.test/old/1?q=2",
        ),
        (
            Redirect {
                host: "b.test".to_owned(),
                port: 8080,
                status: 302,
                ..Redirect::default()
            },
            "http://b.test:8080/old/1?q=2",
        ),
        (
            Redirect {
                path: to_path(path_modifier::Kind::Prefix("/".to_owned())),
                status: 302,
                ..Redirect::default()
            },
            "http://x.a.test/1?q=2",
        ),
        (
            Redirect {
                path: to_path(path_modifier::Kind::Full("/new".to_owned())),
                status: 302,
                ..Redirect::default()
            },
            "http://x.a.test/new?q=2",
        ),
    ];
    for (action, expected) in cases {
        let snapshot = snapshot(vec![("*.a.test", vec![redirect(action)])]);
        let explanation = ask(&snapshot, "GET", "http://x.a.test/old/1?q=2", &[]);
        let ExplainedOutcome::Redirected { location, .. } = &explanation.outcome else {
            panic!("{:?}", explanation.outcome);
        };
        assert_eq!(location, expected);
    }
}

#[test]
fn a_rewrite_changes_the_path_that_backends_get() {
    for (from, to, path, expected) in [
        ("/a", "/b", "/a/x?q", "/b/x?q"),
        ("/a", "/", "/a/x", "/x"),
        ("/a", "", "/a", "/"),
        ("", "/b", "/x", "/b/x"),
        ("", "/", "/x", "/x"),
    ] {
        let mut route = route("r", prefix(from));
        if let Some(Action::Forward(forward)) = &mut route.action {
            forward.rewrite = Some(Box::new(UrlRewrite {
                host: "h.test".to_owned(),
                host_header: String::new(),
                path: Some(PathModifier {
                    kind: Some(path_modifier::Kind::Prefix(to.to_owned())),
                }),
            }));
        }
        let snapshot = snapshot(vec![("*", vec![route])]);
        let explanation = ask(&snapshot, "GET", &format!("http://a.test{path}"), &[]);
        let ExplainedOutcome::Forwarded { host, path, .. } = &explanation.outcome else {
            panic!("{:?}", explanation.outcome);
        };
        assert_eq!((host.as_str(), path.as_str()), ("h.test", expected));
    }
}

#[test]
fn preflight_goes_to_route_of_actual_request() {
    let mut only_put = route("put", prefix("/"));
    only_put.method = "PUT".to_owned();
    only_put.cors = Some(Box::new(Cors {
        allow_origins: vec![CorsOrigin {
            kind: Some(cors_origin::Kind::Exact("https://o.test".to_owned())),
        }],
        ..Cors::default()
    }));
    let snapshot = snapshot(vec![("*", vec![only_put])]);
    let asked = |method: &str, origin: &str| {
        let headers = [&*format!("access-control-request-method: {method}"), origin];
        ask(&snapshot, "OPTIONS", "http://a.test/", &headers)
    };
    let allowed = asked("PUT", "origin: https://o.test");
    assert_eq!(taken(&allowed), Some("put"));
    assert!(allowed.route.as_ref().is_some_and(|it| it.preflight));
    assert_eq!(status(&allowed), 200);
    assert_eq!(status(&asked("POST", "origin: https://o.test")), 404);
    assert_eq!(status(&asked("PUT", "x-other: 1")), 404);
}

#[test]
fn an_invalid_rule_answers_by_itself() {
    let mut broken = route("broken", prefix("/"));
    broken.action = Some(Action::DirectResponse(DirectResponse::new(500)));
    let mut gone = route("gone", prefix("/gone"));
    if let Some(Action::Forward(forward)) = &mut gone.action {
        forward.backends[0].backend = String::new();
    }
    let snapshot = snapshot(vec![("*", vec![gone, broken])]);
    for (url, object) in [("http://a.test/", "broken"), ("http://a.test/gone", "gone")] {
        let explanation = ask(&snapshot, "GET", url, &[]);
        assert_eq!(status(&explanation), 500);
        assert_eq!(taken(&explanation), Some(object));
    }
}

#[test]
fn the_server_name_picks_the_listener() {
    let tls = Some(TlsTermination {
        keys: vec!["Secret/default/k".to_owned()],
        client_trust_bundle: "ConfigMap/default/ca".to_owned(),
        ..TlsTermination::default()
    });
    let mut snapshot = snapshot(Vec::new());
    let passed = Listener {
        l4_routes: vec![L4Route {
            name: "TLSRoute/default/pass/rules/0".to_owned(),
            hostnames: vec!["p.x.test".to_owned()],
            backends: vec![WeightedBackend {
                backend: SHOP.to_owned(),
                weight: 1,
                ..WeightedBackend::default()
            }],
            ..L4Route::default()
        }],
        ..listener("tls", Protocol::Tls, "*.x.test", "")
    };
    snapshot.ports = vec![Port {
        port: 443,
        listeners: vec![
            Listener {
                tls,
                ..listener("mutual", Protocol::Https, "m.test", "https/m")
            },
            passed,
            listener("rest", Protocol::Https, "*.test", "https/rest"),
        ],
        ..Port::default()
    }];
    snapshot.route_tables = vec![RouteTable {
        name: "https/rest".to_owned(),
        virtual_hosts: vec![VirtualHost {
            domain: "*.test".to_owned(),
            routes: vec![route("rest", prefix(""))],
            ..VirtualHost::default()
        }],
    }];
    for (url, expected) in [
        ("https://p.x.test/", Some("pass")),
        ("https://q.x.test/", None),
        ("https://q.test/", Some("rest")),
        ("https://m.test/", None),
        ("https://other/", None),
    ] {
        let explanation = ask(&snapshot, "GET", url, &[]);
        assert_eq!(taken(&explanation), expected, "{url}: {explanation:?}");
    }
    let mut request =
        ExplainRequest::parse("GET", "https://m.test/", &[] as &[&str], None).unwrap();
    let mutual = Explainer::new(&snapshot).explain(&request);
    assert!(matches!(mutual.outcome, ExplainedOutcome::Refused { .. }));
    request.client_certificate = true;
    let shown = Explainer::new(&snapshot).explain(&request);
    // The TLS handshake succeeds, but the listener has no route table.
    assert_eq!(status(&shown), 404);
}

#[test]
fn changed_answer_names_previous_match() {
    let all = || route("all", prefix(""));
    let old = snapshot(vec![("*", vec![all()])]);
    let new = snapshot(vec![("*", vec![route("b", prefix("/b")), all()])]);
    assert_eq!(changed_answers(Some(&old), Some(&old)), []);
    let changed = changed_answers(Some(&old), Some(&new));
    assert_eq!(changed.len(), 1, "{changed:?}");
    assert_eq!(changed[0].route, "HTTPRoute/default/b/rules/0/matches/0");
    assert!(changed[0].before.contains("/all/"), "{changed:?}");
    let before = changed[0].taken_from.as_deref();
    assert_eq!(before, Some("HTTPRoute/default/all/rules/0/matches/0"));
    // The first match handles every request, so the second one has no effect.
    let hidden = snapshot(vec![("*", vec![all(), route("b", prefix("/b"))])]);
    assert_eq!(changed_answers(Some(&old), Some(&hidden)), []);
    let gone = changed_answers(Some(&old), None);
    assert_eq!(gone.len(), 1, "{gone:?}");
    assert!(gone[0].after.contains("nothing listens"), "{gone:?}");
}

#[test]
fn an_object_is_served_where_its_matches_are() {
    let snapshot = snapshot(vec![("a.test", vec![route("a", prefix("/a"))])]);
    for (object, part) in [
        (
            "HTTPRoute/default/a",
            Some("HTTPRoute/default/a/rules/0/matches/0"),
        ),
        (
            "Service/default/shop",
            Some("HTTPRoute/default/a/rules/0/matches/0"),
        ),
        (
            "Gateway/default/edge",
            Some("Gateway/default/edge/listeners/http"),
        ),
        ("HTTPRoute/default/b", None),
    ] {
        let places = served(&snapshot, object);
        let first = places.first().map(|it| it.part.as_str());
        assert_eq!(first, part, "{object}");
    }
}
