//! Parts of a snapshot that are wrong, and left out alone.

use sesame_proto::schema::{
    AppProtocol, Backend, BackendTls, HeaderModifier, Redirect, Route, VirtualHost, route::Action,
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
        .push(backend("unverified", BackendTls::default()));
    snapshot.backends.push(backend(
        "bundleless",
        BackendTls {
            trust_bundle: "ConfigMap/ns/none".into(),
            dns_names: vec!["a".into()],
            ..Default::default()
        },
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
                request_headers: Some(broken_header),
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
