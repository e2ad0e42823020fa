//! Parts of a snapshot that are wrong, and left out alone.

use sesame_proto::schema::{
    AppProtocol, Backend, BackendTls, DirectResponse, HeaderModifier, PathMatch, Redirect, Route,
    StringMatch, VirtualHost, path_match, route::Action, string_match,
};

use super::envoy::{envoy, validate};
use super::everything::everything;
use super::parts::{WEB, forward, header, options, route, to};
use crate::{dump, render, static_bootstrap};

#[test]
fn what_is_wrong_is_left_out_alone() {
    let (mut snapshot, keys) = everything();
    let backend = |name: &str, tls| Backend {
        name: name.into(),
        endpoints: WEB.into(),
        protocol: AppProtocol::Http1.into(),
        tls: Some(tls),
        session_key: b"key".to_vec(),
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

/// A match of a kind that a newer controller may know must not give what it protects to a wider route.
#[test]
fn what_protects_and_cannot_be_matched_is_refused_and_not_left_out() {
    let (mut snapshot, keys) = everything();
    let exact = |name: &str| StringMatch {
        name: name.into(),
        kind: Some(string_match::Kind::Exact("a".into())),
    };
    let unknown = |name: &str| StringMatch {
        name: name.into(),
        kind: None,
    };
    let refuses = || Action::DirectResponse(DirectResponse { status: 500 });
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
    // What protects nothing leaves its requests to others.
    assert_eq!(routes.len(), 7, "{routes:?}");
    if let Some(envoy) = envoy() {
        validate(&envoy, "pb", &static_bootstrap(&rendered).unwrap()).unwrap();
    }
}
