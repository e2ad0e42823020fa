//! Invalid parts of a snapshot are left out without affecting other parts.

use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, route};
use prost::Message as _;
use sesame_proto::schema::{
    AppProtocol, Backend, BackendTls, DirectResponse, HeaderModifier, PathMatch, Redirect, Route,
    RouteTable, StringMatch, VirtualHost, path_match, route::Action, string_match,
};
use sesame_proto::sizes::MAX_PER_VIRTUAL_HOST;

use super::envoy::{envoy, validate};
use super::everything::everything;
use super::parts::{WEB, forward, header, options, route, to};
use crate::context::RenderContext;
use crate::http::request_filters;
use crate::http::route_tables::{self, TableRoom};
use crate::rendered::RenderProblems;
use crate::{dump, render, static_bootstrap};

#[test]
fn only_invalid_parts_are_left_out() {
    let (mut snapshot, keys) = everything();
    let backend = |name: &str, tls| Backend {
        name: name.into(),
        endpoints: WEB.into(),
        protocol: AppProtocol::Http1.into(),
        tls: Some(tls),
        session_key: b"key".to_vec(),
        idle_timeout_ms: None,
        load_balancer: None,
        health_check: None,
        outlier: None,
        breaker: None,
        connections: None,
        panic_percent: None,
        zone_preference: None,
        fallback: String::new(),
        weighted: false,
    };
    snapshot
        .backends
        .push(backend("unverified", Box::default()));
    snapshot.backends.push(backend(
        "bundleless",
        Box::new(BackendTls {
            trust_bundle: "ConfigMap/ns/none".into(),
            dns_names: vec!["a".into()],
            ..Default::default()
        }),
    ));
    let unverified = |name, change: fn(&mut BackendTls)| {
        let mut tls = BackendTls {
            unverified: true,
            ..Default::default()
        };
        change(&mut tls);
        backend(name, Box::new(tls))
    };
    snapshot.backends.extend([
        unverified("contradictory", |tls| tls.dns_names = vec!["a".into()]),
        unverified("outdated", |tls| tls.min_version = 9),
        unverified("weak", |tls| tls.cipher_suites = vec!["AES128-SHA".into()]),
    ]);
    let broken_header = HeaderModifier {
        set: vec![
            header("host", "a"),
            header("a b", "a"),
            header("x-ok", "a\nb"),
        ],
        add: vec![header("x-good", "yes")],
        remove: vec![":path".into()],
    };
    snapshot.route_tables[0].virtual_hosts = vec![VirtualHost {
        domain: "*".into(),
        routes: vec![
            route("prefix", "/a?b", Action::Forward(forward(&[to(WEB, 1)]))),
            route(
                "unverified",
                "/u",
                Action::Forward(forward(&[to("unverified", 1)])),
            ),
            Route {
                request_headers: Some(Box::new(broken_header)),
                ..route("headers", "/h", Action::Forward(forward(&[to(WEB, 1)])))
            },
            route(
                "status",
                "/s",
                Action::Redirect(Redirect {
                    status: 200,
                    ..Default::default()
                }),
            ),
        ],
        ..VirtualHost::default()
    }];
    let duplicate = snapshot.route_tables[0].virtual_hosts[0].clone();
    snapshot.route_tables[0].virtual_hosts.push(duplicate);
    snapshot.ports[1].listeners[0].tls.as_mut().unwrap().keys = vec!["Secret/ns/none".into()];
    let rendered = render(&snapshot, &keys, &options());
    let objects: Vec<&str> = rendered
        .problems
        .iter()
        .map(|p| p.object.as_str())
        .collect();
    let name = |n: &str| format!("HTTPRoute/ns/{n}/rules/0/matches/0");
    let headers = name("headers");
    assert_eq!(
        objects,
        [
            "unverified",
            "bundleless",
            "contradictory",
            "outdated",
            "weak",
            "Gateway/ns/gw/listeners/a",
            &name("prefix"),
            &name("unverified"),
            &headers,
            &headers,
            &headers,
            &headers,
            &name("status"),
            "http/80",
        ]
    );
    let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
    let routes = printed["routes"][0]["virtual_hosts"][0]["routes"]
        .as_array()
        .unwrap();
    assert_eq!(routes.len(), 3);
    assert_eq!(routes[0]["direct_response"]["status"], 500);
    assert_eq!(
        routes[1]["request_headers_to_add"][0]["header"]["key"],
        "x-good"
    );
    assert_eq!(routes[2]["direct_response"]["status"], 500);
    if let Some(envoy) = envoy() {
        validate(&envoy, "pb", &static_bootstrap(&rendered).unwrap()).unwrap();
    }
}

/// A newer controller may use an unknown kind of match. Requests for such a route must not fall
/// through to a wider route.
#[test]
fn unmatchable_protective_routes_are_refused_not_omitted() {
    let (mut snapshot, keys) = everything();
    let exact = |name: &str| StringMatch {
        name: name.into(),
        kind: Some(string_match::Kind::Exact("a".into())),
    };
    let unknown = |name: &str| StringMatch {
        name: name.into(),
        kind: None,
    };
    let refuses = || Action::DirectResponse(DirectResponse::new(500));
    let expression = |path: &str, expression: &str| PathMatch {
        kind: Some(path_match::Kind::Regex(format!("{path}{expression}"))),
    };
    let expensive = "[ab]*a[ab]{700}[ab]{700}";
    let to_web = || Action::Forward(forward(&[to(WEB, 1)]));
    let mut routes = vec![
        Route {
            path: Some(PathMatch { kind: None }),
            headers: vec![exact("x-known"), unknown("x-unknown")],
            query_params: vec![exact("known"), unknown("unknown")],
            method: "GET".into(),
            ..route("path", "/p", refuses())
        },
        Route {
            path: Some(PathMatch { kind: None }),
            ..route("open", "/o", to_web())
        },
        Route {
            path: Some(expression("/bad/a", "(")),
            ..route("bad", "/b", refuses())
        },
    ];
    for name in ["a", "b", "c", "d", "private", "none"] {
        let action = if name == "private" {
            refuses()
        } else {
            to_web()
        };
        let path = expression(&format!("/{name}/"), expensive);
        routes.push(Route {
            path: Some(path),
            ..route(name, "/", action)
        });
    }
    snapshot.route_tables[0].virtual_hosts = vec![VirtualHost {
        domain: "*".into(),
        routes,
        ..VirtualHost::default()
    }];
    let rendered = render(&snapshot, &keys, &options());
    let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
    let routes = printed["routes"][0]["virtual_hosts"][0]["routes"]
        .as_array()
        .unwrap();
    let failing = routes
        .iter()
        .filter(|route| route["direct_response"]["status"] == 500);
    let matches: Vec<_> = failing.map(|route| &route["match"]).collect();
    assert_eq!(matches.len(), 3, "{matches:?}");
    assert_eq!(matches[0]["prefix"], "/");
    let headers = matches[0]["headers"].as_array().unwrap();
    let headers: Vec<_> = headers.iter().map(|header| &header["name"]).collect();
    assert_eq!(headers, [":method", "x-known"]);
    let query = matches[0]["query_parameters"].as_array().unwrap();
    assert_eq!(query.len(), 1);
    assert_eq!(query[0]["name"], "known");
    assert_eq!(matches[1]["path_separated_prefix"], "/bad");
    assert_eq!(matches[2]["path_separated_prefix"], "/private");
    assert_eq!(routes.len(), 7, "{routes:?}");
    if let Some(envoy) = envoy() {
        validate(&envoy, "pb", &static_bootstrap(&rendered).unwrap()).unwrap();
    }
}

/// About 1 MiB, more than the controller would publish.
fn forged(name: &str) -> Route {
    let added = (0..256).map(|i| header(&format!("x-{i}"), &"v".repeat(4096)));
    Route {
        request_headers: Some(Box::new(HeaderModifier {
            add: added.collect(),
            ..HeaderModifier::default()
        })),
        ..route(
            name,
            &format!("/{name}"),
            Action::Forward(forward(&[to(WEB, 1)])),
        )
    }
}

#[test]
fn forged_virtual_host_answers_500_beyond_its_size() {
    let (mut snapshot, keys) = everything();
    let routes = (0..40).map(|i| forged(&format!("r{i:02}"))).collect();
    snapshot.route_tables[0].virtual_hosts = vec![VirtualHost {
        domain: "*".into(),
        routes,
        ..VirtualHost::default()
    }];
    let rendered = render(&snapshot, &keys, &options());
    let mut tables = rendered.route_tables.iter();
    let table = tables.find(|it| it.name == snapshot.route_tables[0].name);
    let table = table.expect("the table");
    let size = table.bytes.len() as u64;
    assert!(size <= MAX_PER_VIRTUAL_HOST, "{size}");
    assert!(size > MAX_PER_VIRTUAL_HOST / 2, "{size}");
    let mut problems = rendered.problems.iter();
    let problem = problems
        .find(|it| it.object.contains("/r39/"))
        .expect("a problem");
    for part in ["16384 KiB", "500"] {
        assert!(problem.message.contains(part), "{}", problem.message);
    }
    let table = RouteConfiguration::decode(table.bytes.as_ref()).unwrap();
    let last = table.virtual_hosts[0].routes.last().expect("a route");
    assert!(last.name.contains("/r39/"), "{}", last.name);
    let status = match &last.action {
        Some(route::Action::DirectResponse(answer)) => answer.status,
        _ => 0,
    };
    assert_eq!(status, 500);
}

#[test]
fn forged_gateway_answers_500_beyond_its_size() {
    let (snapshot, _) = everything();
    let options = options();
    let filters = request_filters::of_snapshot(None, &[]);
    let context = RenderContext::new(&snapshot, &[], filters, &options);
    let host = |i: usize| VirtualHost {
        domain: format!("h{i}.test"),
        routes: vec![forged(&format!("r{i}"))],
        ..VirtualHost::default()
    };
    let table = |name: &str, hosts: [usize; 2]| RouteTable {
        name: name.to_owned(),
        virtual_hosts: hosts.map(host).to_vec(),
    };
    let mut problems = RenderProblems::default();
    // Leaves room for three of the four virtual hosts.
    let mut room = TableRoom::new(4 * 1024 * 1024);
    let mut render = |table: &RouteTable| {
        let rendered = route_tables::render(table, &context, &mut room, &mut problems);
        RouteConfiguration::decode(rendered.bytes.as_ref()).unwrap()
    };
    let tables = [table("http/80", [0, 1]), table("http/81", [2, 3])].map(|it| render(&it));
    let problems = problems.distinct();
    let messages = problems
        .iter()
        .filter(|it| it.message.contains("earlier virtual hosts leave"));
    let messages: Vec<_> = messages
        .map(|it| (it.object.as_str(), &it.message))
        .collect();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0].0, "HTTPRoute/ns/r3/rules/0/matches/0");
    assert!(messages[0].1.contains("h3.test"), "{}", messages[0].1);
    let routes = tables.iter().flat_map(|it| &it.virtual_hosts);
    let names: Vec<&str> = routes
        .flat_map(|host| &host.routes)
        .map(|route| route.name.as_str())
        .collect();
    let [first, second, third, last] = names.as_slice() else {
        panic!("{names:?}");
    };
    for (name, part) in [(first, "/r0/"), (second, "/r1/"), (third, "/r2/")] {
        assert!(name.contains(part), "{names:?}");
    }
    assert_eq!(*last, "h3.test");
}
