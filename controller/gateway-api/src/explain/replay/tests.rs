use proptest::prelude::*;
use sesame_proto::schema::route::Action;
use sesame_proto::schema::{
    AddressFilter, AddressRange, Cors, CorsOrigin, Forward, PathModifier, Redirect, RequestFilters,
    Route, StringMatch, UrlRewrite, cors_origin, path_modifier, string_match,
};

use super::super::HeaderField;
use super::super::tests::{prefix, route, snapshot};
use super::*;

fn exact(name: &str, value: &str) -> StringMatch {
    StringMatch {
        name: name.to_owned(),
        kind: Some(string_match::Kind::Exact(value.to_owned())),
    }
}

fn replayed(
    old: Vec<Snapshot>,
    new: Vec<Snapshot>,
    host: Option<&str>,
    log: &str,
) -> Result<ReplayReport, ReplayError> {
    let (old, new) = (ReplayConfiguration::new(old), ReplayConfiguration::new(new));
    let mut replay = Replay::new(&old, &new, host.map(str::to_owned));
    for chunk in log.as_bytes().chunks(7) {
        replay.push(chunk)?;
    }
    replay.finish()
}

fn get(path: &str) -> String {
    format!("192.0.2.1 - - [time] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"curl\"\n")
}

#[test]
fn differences_are_grouped_by_outcome() {
    let old = snapshot(vec![("a.test", vec![route("all", prefix(""))])]);
    let new = snapshot(vec![(
        "a.test",
        vec![route("cart", prefix("/cart")), route("all", prefix(""))],
    )]);
    let lines = [
        "/",
        "/cart/1?token=hidden",
        "/cart/1?token=other",
        "/cart/2",
        "/cart/3",
        "/cart/4",
    ];
    let mut log: String = lines.map(get).concat();
    log.push_str("nonsense\n\n192.0.2.1 - - [time] \"-\" 400 0");
    let report = replayed(vec![old.clone()], vec![new.clone()], Some("a.test"), &log).unwrap();
    assert_eq!(
        (report.requests, report.changed, report.unanswered),
        (6, 5, 0)
    );
    let [group] = report.groups.as_slice() else {
        panic!("{report:#?}");
    };
    assert_eq!(group.requests, 5);
    assert_eq!(
        group.examples,
        ["1", "2", "3"].map(|it| format!("GET http://a.test/cart/{it}"))
    );
    assert!(
        group
            .before
            .ends_with("by HTTPRoute/default/all/rules/0/matches/0"),
        "{group:?}"
    );
    assert!(
        group
            .after
            .ends_with("by HTTPRoute/default/cart/rules/0/matches/0"),
        "{group:?}"
    );
    assert_eq!(report.unreadable.count, 2);
    let lines: Vec<u64> = report.unreadable.first.iter().map(|it| it.line).collect();
    assert_eq!(lines, [7, 9]);
    let text = replay_text(&report, str::to_owned);
    assert!(
        text.contains("6 requests: 5 handled differently\n"),
        "{text}"
    );
    assert!(
        !text.contains("hidden") && !text.contains("token"),
        "{text}"
    );

    let same = replayed(vec![new.clone()], vec![new], Some("a.test"), &get("/cart")).unwrap();
    assert_eq!((same.changed, same.groups.len()), (0, 0));
    let text = replay_text(&same, str::to_owned);
    assert_eq!(text, "1 request: none is handled differently\n");
}

#[test]
fn route_in_log_is_compared_with_old_configuration() {
    let old = snapshot(vec![("*", vec![route("all", prefix(""))])]);
    let line = |name: &str| {
        let route = format!("HTTPRoute/default/{name}/rules/0/matches/0");
        let line = serde_json::json!({"method": "GET", "host": "a.test", "path": "/", "port": 80,
            "protocol": "HTTP/1.1", "route": route});
        format!("{line}\n")
    };
    let log = line("all") + &line("gone") + &line("gone");
    let report = replayed(vec![old.clone()], vec![old], None, &log).unwrap();
    assert_eq!(
        (report.requests, report.changed, report.rerouted),
        (3, 0, 2)
    );
    let text = replay_text(&report, str::to_owned);
    assert!(
        text.contains("2 requests for which the log names another route"),
        "{text}"
    );
}

#[test]
fn rewrites_differ_only_for_affected_requests() {
    let with = |modifier: path_modifier::Kind| {
        let redirect = Redirect {
            status: 302,
            path: Some(PathModifier {
                kind: Some(modifier),
            }),
            ..Redirect::default()
        };
        let route = Route {
            action: Some(Action::Redirect(redirect)),
            ..route("moved", prefix("/a"))
        };
        snapshot(vec![("a.test", vec![route])])
    };
    let old = with(path_modifier::Kind::Prefix("/b".to_owned()));
    let new = with(path_modifier::Kind::Full("/b".to_owned()));
    let log = [get("/a?secret=1"), get("/a/x?secret=1"), get("/c")].concat();
    let report = replayed(vec![old], vec![new], Some("a.test"), &log).unwrap();
    assert_eq!((report.requests, report.changed), (3, 1), "{report:#?}");
    assert!(
        report.groups[0]
            .before
            .starts_with("302 to http://a.test/b/x by")
    );
    assert!(
        report.groups[0]
            .after
            .starts_with("302 to http://a.test/b by")
    );
}

#[test]
fn refused_clients_and_closed_ports_are_reported() {
    let routes = || vec![("*", vec![route("all", prefix(""))])];
    let old = snapshot(routes());
    let mut filtered = snapshot(routes());
    filtered.filters = Some(Box::new(RequestFilters {
        address_filters: vec![AddressFilter {
            name: "AccessPolicy/default/office".to_owned(),
            deny: vec![AddressRange {
                network: "192.0.2.0/24".to_owned(),
                peer: false,
            }],
            allow: Vec::new(),
        }],
        ..RequestFilters::default()
    }));
    let other_client = get("/").replace("192.0.2.1", "198.51.100.1");
    let log = get("/") + &other_client;
    let report = replayed(vec![old.clone()], vec![filtered], Some("a.test"), &log).unwrap();
    assert!(
        report
            .groups
            .iter()
            .any(|it| it.after.starts_with("403 by") && it.requests == 1)
    );

    let report = replayed(vec![old.clone()], Vec::new(), Some("a.test"), &get("/")).unwrap();
    assert_eq!(
        report.groups[0].after,
        "no response: nothing listens on port 80"
    );
    let error = replayed(Vec::new(), Vec::new(), Some("a.test"), &get("/")).unwrap_err();
    assert!(matches!(error, ReplayError::Unanswered(1)), "{error}");
    let error = replayed(vec![old.clone()], vec![old.clone()], None, &get("/")).unwrap_err();
    assert!(error.to_string().contains("set --host"), "{error}");
    for empty in ["", "\n", "{\"log\":{\"entries\":[]}}"] {
        let error = replayed(vec![old.clone()], vec![old.clone()], None, empty).unwrap_err();
        assert!(
            matches!(error, ReplayError::NoRequest(_)),
            "{empty}: {error}"
        );
    }
    let twice = || vec![old.clone(), old.clone()];
    let error = replayed(twice(), twice(), Some("a.test"), &get("/")).unwrap_err();
    assert!(error.to_string().contains("--gateway"), "{error}");
}

#[test]
fn header_values_are_compared_but_never_shown() {
    let with = |origins: &[&str]| {
        let origins = origins.iter().map(|it| CorsOrigin {
            kind: Some(cors_origin::Kind::Exact((*it).to_owned())),
        });
        let forward = Forward {
            rewrite: Some(Box::new(UrlRewrite {
                host_header: "x-host".to_owned(),
                ..UrlRewrite::default()
            })),
            ..match route("x", prefix("")).action {
                Some(Action::Forward(forward)) => forward,
                other => panic!("{other:?}"),
            }
        };
        let route = Route {
            cors: Some(Box::new(Cors {
                allow_origins: origins.collect(),
                ..Cors::default()
            })),
            action: Some(Action::Forward(forward)),
            ..route("all", prefix(""))
        };
        snapshot(vec![("*", vec![route])])
    };
    let entry = |origin: &str| {
        serde_json::json!({"request": {"method": "GET", "url": "http://a.test/?k=hidden1",
            "headers": [{"name": "Origin", "value": origin}, {"name": "X-Host", "value": "hidden2"},
                        {"name": "Authorization", "value": "hidden3"}]}})
    };
    let entries = [entry("https://hidden4.test"), entry("https://b.test")];
    let log = serde_json::json!({"log": {"entries": entries}}).to_string();
    let new = with(&["https://hidden4.test"]);
    let report = replayed(vec![with(&[])], vec![new], None, &log).unwrap();
    assert_eq!((report.requests, report.changed), (2, 1), "{report:#?}");
    let json = serde_json::to_string(&report).unwrap();
    assert!(!json.contains("hidden"), "{json}");
    assert!(json.contains("origin … is allowed"), "{json}");
}

#[test]
fn port_and_scheme_follow_line_and_configuration() {
    let configuration = ReplayConfiguration::new([snapshot(vec![("*", Vec::new())])]);
    let replay = Replay::new(&configuration, &configuration, None);
    let url = |authority: &str, port: Option<u16>| {
        let logged = LoggedRequest {
            method: "GET".to_owned(),
            authority: Some(authority.to_owned()),
            port,
            target: "/".to_owned(),
            ..LoggedRequest::default()
        };
        let request = replay.request(logged).unwrap();
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
    assert_eq!(Replay::new(&empty, &other, None).default_port, 8080);
    assert_eq!(Replay::new(&configuration, &other, None).default_port, 80);
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
    let host = Some("a.test".to_owned());
    let mut replay = Replay::new(&configuration, &configuration, host);
    for query in ["?x=1&q=1", "?q=1", "?q=1&y"] {
        replay.push(get(&format!("/{query}")).as_bytes()).unwrap();
    }
    assert_eq!(replay.known.len(), 1);
    replay.push(get("/?q=2").as_bytes()).unwrap();
    assert_eq!(replay.known.len(), 2);
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
    replay.relevance.reduce(&mut logged);
    let left = logged.headers.iter();
    let left: Vec<(&str, &str)> = left.map(|it| (&*it.name, &*it.value)).collect();
    assert_eq!(left, [("x_y", ""), ("user-agent", "v")]);
    assert_eq!(logged.target, "/");
    let report = replay.finish().unwrap();
    assert_eq!((report.requests, report.changed), (4, 0));
    assert_eq!(report.notes, Vec::<String>::new());
}

proptest! {
    #[test]
    fn any_log_is_read_without_panic(
        log in "([{}:,\\[\"\\\\ \n?/é-]|\\] \"|\\\\x|GET |/b/c| HTTP/1.1|192.0.2.1 - - |a\\.test|\" \"|\
                \"log\"|\"method\":\"GET\"|\"path\":\"/b\"|\"host\":\"a\\.test\"){0,60}",
        size in 1_usize..9,
    ) {
        let configuration = ReplayConfiguration::new([snapshot(vec![("a.test", vec![route("b", prefix("/b"))])])]);
        let mut replay = Replay::new(&configuration, &configuration, None);
        let pushed = log.as_bytes().chunks(size).try_for_each(|chunk| replay.push(chunk));
        if let Ok(report) = pushed.and_then(|()| replay.finish()) {
            prop_assert_eq!(report.changed, 0, "{}", log);
        }
    }
}
