use sesame_proto::schema::route::Action;
use sesame_proto::schema::{
    AddressFilter, AddressRange, Cors, CorsOrigin, Forward, PathModifier, Redirect, RequestFilters,
    Route, StringMatch, UrlRewrite, cors_origin, path_modifier, string_match,
};

use super::super::tests::{prefix, route, snapshot};
use super::*;

pub(super) fn exact(name: &str, value: &str) -> StringMatch {
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
    run(&replay(&old, &new, host), log, 7)
}

pub(super) fn replay<'s>(
    old: &'s ReplayConfiguration,
    new: &'s ReplayConfiguration,
    host: Option<&str>,
) -> Replay<'s> {
    Replay {
        old,
        new,
        host: host.map(str::to_owned),
        threads: NonZeroUsize::MIN,
    }
}

/// Passes `log` in chunks of `size` bytes.
pub(super) fn run(
    replay: &Replay<'_>,
    log: &str,
    size: usize,
) -> Result<ReplayReport, ReplayError> {
    replay.run(|push| log.as_bytes().chunks(size).try_for_each(push))
}

pub(super) fn get(path: &str) -> String {
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

    let log = get("/cart");
    let mistyped = replayed(vec![old], vec![new.clone()], Some("b.test"), &log);
    assert!(
        matches!(mistyped, Err(ReplayError::Unrouted(1))),
        "{mistyped:?}"
    );
    let same = replayed(vec![new.clone()], vec![new], Some("a.test"), &log).unwrap();
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
    let two = ReplayConfiguration::new(twice());
    let threads = NonZeroUsize::new(3).unwrap();
    let replay = Replay {
        threads,
        ..replay(&two, &two, Some("a.test"))
    };
    let error = run(&replay, &get("/").repeat(99), 100)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("line 1: ") && error.contains("--gateway"),
        "{error}"
    );
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
fn other_protections_are_a_difference() {
    let office = |network: &str| {
        let mut filtered = snapshot(vec![("a.test", vec![route("all", prefix(""))])]);
        filtered.filters = Some(Box::new(RequestFilters {
            address_filters: vec![AddressFilter {
                name: "AccessPolicy/default/office".to_owned(),
                deny: vec![AddressRange {
                    network: network.to_owned(),
                    peer: false,
                }],
                allow: Vec::new(),
            }],
            ..RequestFilters::default()
        }));
        filtered
    };
    let (old, new) = (office("192.0.2.0/24"), office("192.0.0.0/16"));
    let report = replayed(vec![old], vec![new], Some("a.test"), &get("/")).unwrap();
    assert_eq!((report.changed, report.other_protection), (0, 1));
    assert!(!report.is_same());
    let text = replay_text(&report, str::to_owned);
    assert!(
        text.contains("note: 1 request whose checks or limits differ"),
        "{text}"
    );
}

#[test]
fn mostly_unreadable_log_is_an_error() {
    let configuration = || vec![snapshot(vec![("a.test", vec![route("all", prefix(""))])])];
    let log = |nonsense: usize| get("/") + &"nonsense\n".repeat(nonsense);
    let compare = |log: &str| replayed(configuration(), configuration(), Some("a.test"), log);
    assert_eq!(compare(&log(1)).unwrap().unreadable.count, 1);
    let error = compare(&log(2)).unwrap_err().to_string();
    assert!(error.contains("2 lines unreadable: line 2"), "{error}");
}

#[test]
fn missing_clients_and_rewritten_hosts_are_noted() {
    let mut routed = route("all", prefix(""));
    if let Some(Action::Forward(forward)) = &mut routed.action {
        forward.rewrite = Some(Box::new(UrlRewrite {
            host: "internal.test".to_owned(),
            ..UrlRewrite::default()
        }));
    }
    let mut configuration = snapshot(vec![("*", vec![routed])]);
    configuration.filters = Some(Box::new(RequestFilters {
        address_filters: vec![AddressFilter::default()],
        ..RequestFilters::default()
    }));
    let line = "\u{feff}[time] \"GET / HTTP/2\" 200 - 0 5 1 0 \"192.0.2.1\" \"curl\" \"5b8c\" \
                \"a.test\" \"10.0.0.1:80\"\n";
    let (old, new) = (vec![configuration.clone()], vec![configuration]);
    let report = replayed(old, new, None, line).unwrap();
    assert_eq!(report.unreadable.count, 0);
    let [client, host] = report.notes.as_slice() else {
        panic!("{report:#?}");
    };
    assert!(client.contains("client addresses"), "{client}");
    assert!(host.contains("after the rewrite"), "{host}");
}

#[test]
fn settings_that_are_not_compared_are_counted() {
    let idle = |timeout: u64| {
        let mut route = route("all", prefix(""));
        if let Some(Action::Forward(forward)) = &mut route.action {
            forward.stream_idle_timeout_ms = Some(timeout);
        }
        snapshot(vec![("a.test", vec![route])])
    };
    let report = replayed(vec![idle(1)], vec![idle(2)], Some("a.test"), &get("/")).unwrap();
    assert_eq!((report.changed, report.other_settings), (0, 1));
    assert!(report.is_same());
}
