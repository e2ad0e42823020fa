//! For arbitrary objects, resolution never panics, and produces a valid snapshot that does not
//! depend on object order or caches.

use std::collections::HashSet;

use proptest::prelude::*;
use sesame_proto::schema::route::Action;
use sesame_proto::schema::{Protocol, Snapshot};

use super::ingresses::CLASS;
use super::{BASE, objects, resolve, world_of};
use crate::{Options, Resolver};
use sesame_kinds::world::AnyObject;

fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("a.com".to_owned()),
        Just("*.a.com".to_owned()),
        Just("b.a.com".to_owned()),
        Just("*.b.a.com".to_owned()),
        Just("*.com".to_owned()),
        Just("1.2.3.4".to_owned()),
        "[a-zA-Z*.%é ]{1,6}",
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("a".to_owned()),
        Just("/".to_owned()),
        Just("10s".to_owned()),
        "\\PC{0,8}",
        "[/.a-c%]{0,6}"
    ]
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

prop_compose! {
    fn listener()(
        name in prop_oneof![Just("l1".to_owned()), Just("l2".to_owned()), text()],
        port in prop_oneof![Just(80), Just(443), any::<i32>()],
        protocol in prop_oneof![Just("HTTP"), Just("HTTPS"), Just("TLS"), Just("TCP"), Just("UDP"), Just("X")],
        hostname in host(),
        from in prop_oneof![Just("All"), Just("Same"), Just("Selector"), Just("None")],
        tls in any::<bool>(),
    ) -> String {
        let tls = if tls { ", tls: {certificateRefs: [{name: s}]}" } else { "" };
        format!("{{name: {}, port: {port}, protocol: {protocol}, hostname: {}, allowedRoutes: {{namespaces: {{from: \
                 {from}}}}}{tls}}}", quoted(&name), quoted(&hostname))
    }
}

fn filter() -> impl Strategy<Value = String> {
    let t = || text().prop_map(|text| quoted(&text));
    prop_oneof![
        (t(), t()).prop_map(|(a, b)| format!(
            "{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: {a}, value: {b}}}], remove: [{b}]}}}}"
        )),
        (t(), any::<i32>()).prop_map(|(a, port)| format!(
            "{{type: RequestRedirect, requestRedirect: {{hostname: {a}, port: {port}}}}}"
        )),
        (t(), any::<bool>()).prop_map(|(a, full)| {
            let kind = if full { "FullPath" } else { "PrefixMatch" };
            format!("{{type: URLRewrite, urlRewrite: {{path: {{type: Replace{kind}, replace{kind}: {a}}}}}}}")
        }),
        (any::<i32>(), t()).prop_map(|(percent, name)| format!(
            "{{type: RequestMirror, requestMirror: {{backendRef: {{name: {name}, port: 80}}, percent: {percent}}}}}"
        )),
        t().prop_map(|a| format!("{{type: CORS, cors: {{allowOrigins: [{a}], allowHeaders: [{a}]}}}}")),
        t().prop_map(|a| format!("{{type: {a}}}")),
    ]
}

prop_compose! {
    fn rule()(
        path in text(),
        kind in prop_oneof![Just("Exact"), Just("PathPrefix"), Just("RegularExpression"), Just("Glob")],
        filters in prop::collection::vec(filter(), 0..3),
        backend in prop_oneof![Just("a"), Just("b"), Just("none")],
        port in prop_oneof![Just(80), any::<i32>()],
        weight in prop_oneof![Just(1), Just(0), any::<i32>()],
        timeout in text(),
        timed in any::<bool>(),
    ) -> String {
        let timeouts = if timed { format!(", timeouts: {{request: {}}}", quoted(&timeout)) } else { String::new() };
        format!("{{matches: [{{path: {{type: {kind}, value: {}}}}}], filters: [{}], backendRefs: [{{name: {backend}, \
                 port: {port}, weight: {weight}}}]{timeouts}}}", quoted(&path), filters.join(", "))
    }
}

prop_compose! {
    pub(super) fn http_route()(
        name in "[a-e]",
        age in 0_u8..3,
        parent in prop_oneof![Just("name: gw"), Just("kind: ListenerSet, name: a")],
        section in prop_oneof![Just(String::new()), Just("l1".to_owned()), text()],
        hostnames in prop::collection::vec(host(), 0..3),
        rules in prop::collection::vec(rule(), 0..4),
    ) -> String {
        let hostnames: Vec<String> = hostnames.iter().map(|host| quoted(host)).collect();
        format!("---\nkind: HTTPRoute\nmetadata: {{name: {name}, namespace: web, creationTimestamp: \
                 '2026-01-01T00:00:0{age}Z'}}\nspec: {{parentRefs: [{{{parent}, sectionName: {}}}], hostnames: [{}], \
                 rules: [{}]}}\n", quoted(&section), hostnames.join(", "), rules.join(", "))
    }
}

prop_compose! {
    fn grpc_rule()(
        service in prop_oneof![Just("a.B".to_owned()), text()],
        method in prop_oneof![Just("C".to_owned()), Just(String::new()), text()],
        kind in prop_oneof![Just("Exact"), Just("RegularExpression"), Just("Glob")],
        filters in prop::collection::vec(filter(), 0..3),
        backend in prop_oneof![Just("a"), Just("none")],
        weight in prop_oneof![Just(1), Just(0), any::<i32>()],
    ) -> String {
        format!("{{matches: [{{method: {{type: {kind}, service: {}, method: {}}}}}, {{}}], filters: [{}], backendRefs: \
                 [{{name: {backend}, port: 80, weight: {weight}}}]}}", quoted(&service), quoted(&method), filters.join(", "))
    }
}

prop_compose! {
    fn l4_rule()(
        backends in prop::collection::vec(
            (prop_oneof![Just("a"), Just("b"), Just("none")], prop_oneof![Just(1), Just(0), any::<i32>()]),
            0..3,
        ),
    ) -> String {
        let backends: Vec<String> = backends
            .iter()
            .map(|(name, weight)| format!("{{name: {name}, port: 80, weight: {weight}}}"))
            .collect();
        format!("{{backendRefs: [{}]}}", backends.join(", "))
    }
}

fn other_route() -> impl Strategy<Value = String> {
    let l4 = prop_oneof![Just("TLSRoute"), Just("TCPRoute"), Just("UDPRoute")];
    let rules = prop_oneof![
        (Just("GRPCRoute"), prop::collection::vec(grpc_rule(), 0..3)),
        (l4, prop::collection::vec(l4_rule(), 0..3)),
    ];
    (rules, "[a-c]", prop::collection::vec(host(), 0..3)).prop_map(|((kind, rules), name, hostnames)| {
        let hostnames: Vec<String> = hostnames.iter().map(|host| quoted(host)).collect();
        format!(
            "---\nkind: {kind}\nmetadata: {{name: {name}, namespace: web}}\nspec: {{parentRefs: [{{name: gw}}], hostnames: \
             [{}], rules: [{}]}}\n",
            hostnames.join(", "),
            rules.join(", ")
        )
    })
}

const LISTENERS: [&str; 4] = [
    "{name: tcp, port: 1, protocol: TCP}",
    "{name: udp, port: 1, protocol: UDP}",
    "{name: tls, port: 2, protocol: TLS, tls: {mode: Passthrough}}",
    "{name: tls-a, port: 2, protocol: TLS, hostname: '*.a.com', tls: {mode: Passthrough}}",
];

prop_compose! {
    fn listener_set()(
        name in "[a-b]",
        listeners in prop::collection::vec(listener(), 0..3),
    ) -> String {
        format!("---\nkind: ListenerSet\nmetadata: {{name: {name}, namespace: web}}\nspec: {{parentRef: {{name: gw}}, \
                 listeners: [{}]}}\n", listeners.join(", "))
    }
}

prop_compose! {
    fn policy()(
        name in "[a-c]",
        target in prop_oneof![Just("a"), Just("b"), Just("none")],
        section in prop_oneof![Just(String::new()), Just("http".to_owned()), text()],
        hostname in host(),
        ca in prop_oneof![Just("wellKnownCACertificates: System"), Just("caCertificateRefs: []"),
                          Just("caCertificateRefs: [{group: '', kind: ConfigMap, name: none}]")],
        names in prop::collection::vec(host(), 0..2),
    ) -> String {
        let names: Vec<String> = names
            .iter()
            .map(|name| format!("{{type: Hostname, hostname: {}}}", quoted(name)))
            .collect();
        format!("---\nkind: BackendTLSPolicy\nmetadata: {{name: {name}, namespace: web}}\nspec: {{targetRefs: [{{group: '', \
                 kind: Service, name: {target}, sectionName: {}}}], validation: {{hostname: {}, {ca}, subjectAltNames: \
                 [{}]}}}}\n", quoted(&section), quoted(&hostname), names.join(", "))
    }
}

fn service() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a"), Just("b"), Just("none")]
}

prop_compose! {
    fn ingress()(
        name in "[a-c]",
        host in host(),
        paths in prop::collection::vec(
            (text(), prop_oneof![Just("Exact"), Just("Prefix"), Just("ImplementationSpecific")], service()),
            0..3,
        ),
        tls in prop_oneof![Just("[]"), Just("[{secretName: s}]"), Just("[{hosts: [b.a.com], secretName: s}]")],
        default in prop_oneof![Just(""), Just("defaultBackend: {service: {name: b, port: {number: 80}}}, ")],
        redirect in any::<bool>(),
    ) -> String {
        let paths: Vec<String> = paths
            .iter()
            .map(|(path, kind, service)| format!("{{path: {}, pathType: {kind}, backend: {{service: {{name: {service}, \
                                                  port: {{number: 80}}}}}}}}", quoted(path)))
            .collect();
        format!("---\nkind: Ingress\nmetadata: {{name: {name}, namespace: web, annotations: \
                 {{ingress.kubernetes.io/force-ssl-redirect: '{redirect}'}}}}\nspec: {{ingressClassName: edge, \
                 {default}tls: {tls}, rules: [{{host: {}, http: {{paths: [{}]}}}}]}}\n", quoted(&host), paths.join(", "))
    }
}

prop_compose! {
    fn http_proxy()(
        name in "[a-d]",
        root in any::<bool>(),
        fqdn in host(),
        tls in prop_oneof![3 => Just(""), 1 => Just(", tls: {secretName: s}"), 1 => Just(", tls: {passthrough: true}")],
        tcp in prop_oneof![4 => Just(""), 1 => Just("tcpproxy: {services: [{name: a, port: 80}]}, ")],
        includes in prop::collection::vec(("[a-d]", text()), 0..3),
        routes in prop::collection::vec(
            (prop_oneof![Just("prefix"), Just("exact"), Just("regex")], text(), text(), service()),
            0..3,
        ),
    ) -> String {
        let host = if root { format!("virtualhost: {{fqdn: {}{tls}}}, ", quoted(&fqdn)) } else { String::new() };
        let includes: Vec<String> = includes
            .iter()
            .map(|(child, prefix)| format!("{{name: {child}, conditions: [{{prefix: {}}}]}}", quoted(prefix)))
            .collect();
        let routes: Vec<String> = routes
            .iter()
            .map(|(kind, path, value, service)| {
                let header = format!("{{header: {{name: x, contains: {}}}}}", quoted(value));
                format!("{{conditions: [{{{kind}: {}}}, {header}], services: [{{name: {service}, port: 80}}]}}", quoted(path))
            })
            .collect();
        format!("---\nkind: HTTPProxy\nmetadata: {{name: {name}, namespace: web}}\nspec: {{ingressClassName: edge, {host}{tcp}\
                 includes: [{}], routes: [{}]}}\n", includes.join(", "), routes.join(", "))
    }
}

prop_compose! {
    pub(super) fn any_objects()(
        listeners in prop::collection::vec(listener(), 0..5),
        routes in prop::collection::vec(prop_oneof![http_route(), other_route()], 0..10),
        sets in prop::collection::vec(listener_set(), 0..3),
        policies in prop::collection::vec(policy(), 0..3),
        layered in prop::collection::vec(prop_oneof![http_proxy(), ingress()], 0..4),
        by_port in prop::sample::subsequence(&LISTENERS, 0..=LISTENERS.len()),
        address in text(),
        addressed in any::<bool>(),
    ) -> Vec<AnyObject> {
        let addresses = if addressed { format!(", addresses: [{{value: {}}}]", quoted(&address)) } else { String::new() };
        let gateway = format!("---\nkind: Gateway\nmetadata: {{name: gw, namespace: web}}\nspec: {{gatewayClassName: \
                               sesame, allowedListeners: {{namespaces: {{from: All}}}}, listeners: [{}]{addresses}}}\n",
                              listeners.iter().map(String::as_str).chain(by_port).collect::<Vec<_>>().join(", "));
        let more = [sets, policies, layered, routes].concat().concat();
        objects(&format!("{BASE}{gateway}{CLASS}{more}"))
    }
}

fn check(snapshot: &Snapshot) {
    let tables: HashSet<&str> = snapshot
        .route_tables
        .iter()
        .map(|table| table.name.as_str())
        .collect();
    let backends: HashSet<&str> = snapshot
        .backends
        .iter()
        .map(|backend| backend.name.as_str())
        .collect();
    let endpoints: HashSet<&str> = snapshot
        .endpoints
        .iter()
        .map(|set| set.name.as_str())
        .collect();
    assert!(snapshot.route_tables.is_sorted_by(|a, b| a.name < b.name));
    assert!(snapshot.backends.is_sorted_by(|a, b| a.name < b.name));
    assert!(snapshot.endpoints.is_sorted_by(|a, b| a.name < b.name));
    assert!(
        snapshot
            .ports
            .is_sorted_by(|a, b| (a.transport, a.port) < (b.transport, b.port))
    );
    assert!(
        snapshot
            .backends
            .iter()
            .all(|backend| endpoints.contains(backend.endpoints.as_str()))
    );
    for port in &snapshot.ports {
        let mut server_names = HashSet::new();
        for listener in &port.listeners {
            let http = matches!(listener.protocol(), Protocol::Http | Protocol::Https);
            assert_eq!(
                tables.contains(listener.route_table.as_str()),
                http,
                "{listener:?}"
            );
            assert!(!http || listener.l4_routes.is_empty());
            for route in &listener.l4_routes {
                assert_eq!(
                    listener.protocol() == Protocol::Tls,
                    !route.hostnames.is_empty()
                );
                for name in &route.hostnames {
                    assert!(server_names.insert(name), "duplicate {name}");
                }
                for share in route.backends.iter().filter(|b| !b.backend.is_empty()) {
                    assert!(backends.contains(share.backend.as_str()));
                }
            }
        }
    }
    for table in &snapshot.route_tables {
        let mut domains = HashSet::new();
        for host in &table.virtual_hosts {
            assert!(
                domains.insert(host.domain.as_str()),
                "duplicate {}",
                host.domain
            );
            assert!(!host.domain.is_empty());
            for route in &host.routes {
                assert!(route.path.as_ref().is_some_and(|path| path.kind.is_some()));
                if let Action::Forward(forward) = route.action.as_ref().expect("an action") {
                    assert!(
                        forward
                            .backends
                            .iter()
                            .any(|b| b.weight > 0 && !b.backend.is_empty())
                    );
                    for share in forward.backends.iter().filter(|b| !b.backend.is_empty()) {
                        assert!(backends.contains(share.backend.as_str()));
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn output_is_valid_and_depends_only_on_objects(
        (objects, shuffled) in any_objects().prop_flat_map(|objects| {
            (Just(objects.clone()), Just(objects).prop_shuffle())
        }),
    ) {
        // Keep one object per name. Otherwise, the last object wins and the order matters.
        let mut seen = HashSet::new();
        let unique: Vec<AnyObject> = objects.into_iter().filter(|object| seen.insert(object.key())).collect();
        let first = world_of(unique.clone());
        let keep = |object: &AnyObject| unique.contains(object);
        let second = world_of(shuffled.into_iter().filter(keep));
        prop_assert_eq!(&first, &second);

        let options = Options::default();
        let once = resolve(&first, &options);
        for gateway in &once.gateways {
            check(&gateway.snapshot);
        }
        let mut resolver = Resolver::default();
        prop_assert_eq!(&resolver.resolve(&second, &options), &once);
        prop_assert_eq!(&resolver.resolve(&first, &options), &once);
        let listeners = once.statuses.gateways.values().flat_map(|gateway| &gateway.listeners);
        prop_assert!(listeners.clone().all(|listener| listener.conditions.len() >= 4));
    }
}
