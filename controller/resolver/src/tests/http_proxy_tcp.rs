//! `tcpproxy` in HTTPProxies: routing by server name, includes, and errors that close connections.

use sesame_proto::schema::{L4Route, Listener, Protocol};

use super::http_proxies::{NONE, errors, proxy, send, warnings, with};
use super::http_proxy_services::authorities;
use super::ingresses::{CLASS, ingress, path, rule};
use super::tls::{certificate, https, secret};
use super::{HTTP, gateway, resolved};
use crate::Resolution;

fn pair() -> String {
    let pem = certificate(&["h.test"]);
    secret("web", "s", &pem.certificate, &pem.key)
}

fn root(tls: &str, tcp: &str) -> String {
    root_with(tls, tcp, "")
}

fn root_with(tls: &str, tcp: &str, routes: &str) -> String {
    let host = format!("virtualhost: {{fqdn: h.test, tls: {{{tls}}}}}");
    proxy("r", &format!("{host}\ntcpproxy: {{{tcp}}}{routes}"))
}

fn listener(resolution: &Resolution) -> &Listener {
    let ports = &resolution.gateways[0].snapshot.ports;
    let port = ports.iter().find(|port| port.port == 443);
    let mut listeners = port.into_iter().flat_map(|port| &port.listeners);
    listeners
        .find(|it| it.hostname == "h.test")
        .expect("a listener for h.test")
}

fn connections(resolution: &Resolution) -> String {
    let listener = listener(resolution);
    assert_eq!(listener.protocol(), Protocol::Tls);
    let Some(L4Route {
        hostnames,
        backends,
        ..
    }) = listener.l4_routes.first()
    else {
        return "closed".to_owned();
    };
    assert_eq!(hostnames, &["h.test"]);
    let shares: Vec<String> = backends
        .iter()
        .map(|share| {
            let name = share.backend.trim_start_matches("Service/web/");
            let name = name.split('/').next().unwrap_or_default();
            format!("{}x{name}", share.weight)
        })
        .collect();
    let terminated = if listener.tls.is_some() {
        " terminated"
    } else {
        ""
    };
    shares.join(" ") + terminated
}

const PASS: &str = "passthrough: true";
const SERVICE_A: &str = "services: [{name: a, port: 80}]";

#[test]
fn connections_go_to_services_by_weight() {
    for (tls, tcp, expected) in [
        (PASS, SERVICE_A, "1xa"),
        ("secretName: s", SERVICE_A, "1xa terminated"),
        (
            PASS,
            "services: [{name: a, port: 80}, {name: b, port: 80}]",
            "1xa 1xb",
        ),
        (
            PASS,
            "services: [{name: a, port: 80, weight: 90}, {name: b, port: 80, weight: 10}]",
            "90xa 10xb",
        ),
        (
            PASS,
            "services: [{name: a, port: 80, weight: 3}, {name: b, port: 80}]",
            "3xa 0xb",
        ),
    ] {
        let resolution = with(&[pair(), root(tls, tcp)]);
        assert_eq!(connections(&resolution), expected, "{tls} {tcp}");
        assert_eq!(errors(&resolution, "r"), NONE, "{tls} {tcp}");
    }
    let settings = |strategy: &str, interval: i32| {
        let check = format!("healthCheckPolicy: {{intervalSeconds: {interval}}}");
        let tcp = format!("{SERVICE_A}, loadBalancerPolicy: {{strategy: {strategy}}}, {check}");
        with(&[root(PASS, &tcp)])
    };
    let resolution = settings("Cookie", -1);
    assert_eq!(connections(&resolution), "1xa");
    let expected = [
        "RouteError/HealthCheckPolicyInvalid",
        "TCPProxyError/IgnoredField",
    ];
    let mut warned = warnings(&resolution, "r");
    warned.sort_unstable();
    assert_eq!(warned, expected);
    let resolution = settings("Random", 5);
    let backend = &resolution.gateways[0].snapshot.backends[0];
    let check = backend.health_check.as_deref().unwrap();
    assert_eq!((check.interval_ms, check.timeout_ms), (5_000, 2_000));
    assert!(backend.load_balancer.is_some() && warnings(&resolution, "r") == NONE);
}

#[test]
fn includes_lead_to_services_of_last_proxy() {
    let child = |name: &str, tcp: &str| proxy(name, &format!("tcpproxy: {{{tcp}}}"));
    let resolution = with(&[
        root(PASS, "includes: {name: one}"),
        child("one", "include: {name: two}, includes: {name: gone}"),
        child("two", SERVICE_A),
    ]);
    assert_eq!(connections(&resolution), "1xa");
    for name in ["r", "one", "two"] {
        assert_eq!(errors(&resolution, name), NONE, "{name}");
    }
    let elsewhere = proxy(
        "one",
        "virtualhost: {fqdn: o.test}\nroutes: []\ntcpproxy: {}",
    );
    for (child, of, error) in [
        (String::new(), "r", "TCPProxyIncludeError/IncludeNotFound"),
        (elsewhere, "r", "TCPProxyIncludeError/RootIncludesRoot"),
        (
            child("one", "include: {name: one}"),
            "one",
            "TCPProxyIncludeError/IncludeCreatesCycle",
        ),
        (child("one", ""), "one", "TCPProxyError/NothingDefined"),
        (
            proxy("one", "routes: [{services: [{name: a, port: 80}]}]"),
            "one",
            "TCPProxyError/NothingDefined",
        ),
    ] {
        let resolution = with(&[root(PASS, "include: {name: one}"), child]);
        assert_eq!(connections(&resolution), "closed", "{error}");
        assert_eq!(errors(&resolution, of), [error]);
    }
}

#[test]
fn fault_closes_connections_and_keeps_requests() {
    let routes = "\nroutes: [{services: [{name: b, port: 80}]}]";
    let both = format!("{SERVICE_A}, include: {{name: one}}");
    let services = |service: &str| format!("services: [{{name: a, port: 80}}, {{{service}}}]");
    for (tls, tcp, error) in [
        (PASS, "", "TCPProxyError/NothingDefined"),
        (PASS, &*both, "TCPProxyError/NoServicesAndInclude"),
        (
            PASS,
            &services("name: gone, port: 80"),
            "TCPProxyError/ServiceUnresolvedReference",
        ),
        (
            PASS,
            &services("name: b, port: 99"),
            "TCPProxyError/ServiceUnresolvedReference",
        ),
        (
            PASS,
            &services("name: b, port: 80, weight: -1"),
            "TCPProxyError/ServicesNotValid",
        ),
        (
            "secretName: s",
            &services("name: b, port: 80, protocol: tls"),
            "TCPProxyError/ServicesNotValid",
        ),
        (
            "secretName: s, passthrough: true",
            SERVICE_A,
            "TLSError/TLSConfigNotValid",
        ),
        (
            "passthrough: true, clientValidation: {caSecret: ca}",
            SERVICE_A,
            "TLSError/TLSConfigNotValid",
        ),
    ] {
        let resolution = with(&[pair(), root_with(tls, tcp, routes)]);
        assert_eq!(connections(&resolution), "closed", "{tls} {tcp}");
        assert_eq!(errors(&resolution, "r"), [error], "{tls} {tcp}");
    }
    let without_tls = proxy(
        "r",
        &format!("virtualhost: {{fqdn: h.test}}\ntcpproxy: {{{SERVICE_A}}}{routes}"),
    );
    let resolution = with(&[without_tls]);
    assert_eq!(connections(&resolution), "closed");
    assert_eq!(
        errors(&resolution, "r"),
        ["TCPProxyError/TLSMustBeConfigured"]
    );
    let nothing = format!("virtualhost: {{fqdn: h.test, tls: {{{PASS}}}}}{routes}");
    let resolution = with(&[proxy("r", &nothing)]);
    assert_eq!(connections(&resolution), "closed");
    assert_eq!(errors(&resolution, "r"), ["TLSError/TLSConfigNotValid"]);
    assert_eq!(send(&resolution, 80, "/", &[]), "301 https:0");
}

#[test]
fn protection_of_requests_closes_connections() {
    for protection in [
        "ipDenyPolicy: [{source: Peer, cidr: 192.0.2.0/24}]",
        "ipAllowPolicy: [{source: Peer, cidr: 192.0.2.0/24}]",
        "rateLimitPolicy: {local: {requests: 1, unit: hour}}",
        "authorization: {extensionRef: {name: x}}",
        "jwtProviders: [{name: j, default: true, localJWKS: {secretName: keys, key: jwks}}]",
    ] {
        for tls in [PASS, "secretName: s"] {
            let spec = format!(
                "virtualhost: {{fqdn: h.test, tls: {{{tls}}}, {protection}}}\ntcpproxy: {{{SERVICE_A}}}"
            );
            let resolution = with(&[pair(), proxy("r", &spec)]);
            assert_eq!(connections(&resolution), "closed", "{tls} {protection}");
            let found = errors(&resolution, "r");
            let expected = "TCPProxyError/NotSupported".to_owned();
            assert!(found.contains(&expected), "{tls} {protection}: {found:?}");
        }
    }
}

#[test]
fn terminated_connections_reach_verified_tls_services() {
    let ca = authorities("web", "ca", "Opaque");
    let service = "services: [{name: a, port: 80, protocol: tls, validation: {caSecret: ca, subjectName: good.test}}]";
    let resolution = with(&[pair(), ca, root("secretName: s", service)]);
    assert_eq!(errors(&resolution, "r"), NONE);
    assert_eq!(connections(&resolution), "1xa terminated");
    let tls = resolution.gateways[0].snapshot.backends[0].tls.as_deref();
    let names = tls.map(|tls| (tls.trust_bundle.as_str(), tls.dns_names.concat()));
    assert_eq!(
        names,
        Some(("Secret/web/ca/ca.crt", "good.test".to_owned()))
    );
}

#[test]
fn tcp_host_serves_requests_on_plain_port_only() {
    let ingress_spec = format!(
        "tls: [{{hosts: [h.test], secretName: s}}]\n{}",
        rule("h.test", &[path("/x", "Prefix", "b")])
    );
    let routes = "\nroutes:\n- {services: [{name: b, port: 80}]}\n- {conditions: [{prefix: /open}], permitInsecure: \
                  true, services: [{name: b, port: 80}]}";
    let wide = format!(
        "{HTTP}\n- {{name: wide, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{{name: s}}]}}}}"
    );
    for tls in [PASS, "secretName: s"] {
        let all = [
            gateway(&wide),
            CLASS.to_owned(),
            pair(),
            root_with(tls, SERVICE_A, routes),
            ingress("i", &ingress_spec),
        ];
        let resolution = resolved(&all.concat());
        for path in ["/", "/open", "/x"] {
            assert_eq!(send(&resolution, 443, path, &[]), "404", "{path}");
        }
        assert_eq!(send(&resolution, 80, "/", &[]), "301 https:0");
        assert_eq!(send(&resolution, 80, "/open", &[]), "web/b/80");
        assert_eq!(send(&resolution, 80, "/x", &[]), "web/b/80");
        assert_eq!(errors(&resolution, "r"), NONE);
    }
}

#[test]
fn tls_route_of_gateway_precedes_proxy_of_host() {
    let any =
        format!("{HTTP}\n- {{name: tls, port: 443, protocol: TLS, tls: {{mode: Passthrough}}}}");
    let route = "---\nkind: TLSRoute\nmetadata: {name: t, namespace: web}\nspec:\n  parentRefs: [{name: gw}]\n  hostnames: \
                 [h.test]\n  rules: [{backendRefs: [{name: b, port: 80}]}]\n";
    let secure = proxy(
        "r",
        "virtualhost: {fqdn: h.test, tls: {secretName: s}}\nroutes: [{services: [{name: a, port: 80}]}]",
    );
    for host in [secure, root(PASS, SERVICE_A)] {
        let all = [gateway(&any), CLASS.to_owned(), pair(), host.clone()];
        let without = resolved(&all.concat());
        assert_eq!(warnings(&without, "r"), NONE);
        let resolution = resolved(&(all.concat() + route));
        let ports = &resolution.gateways[0].snapshot.ports;
        let port = ports.iter().find(|port| port.port == 443).expect("a port");
        assert_eq!(port.listeners.len(), 1);
        let routes = &port.listeners[0].l4_routes;
        assert_eq!(routes[0].name, "TLSRoute/web/t/rules/0");
        assert_eq!(warnings(&resolution, "r"), ["TLSError/Overridden"]);
        assert_eq!(errors(&resolution, "r"), NONE);
    }
    // The Gateway's own listener has the same hostname.
    let own = https("own", "h.test", "{name: s}");
    let all = [
        gateway(&own),
        CLASS.to_owned(),
        pair(),
        root(PASS, SERVICE_A),
    ];
    let resolution = resolved(&all.concat());
    assert_eq!(listener(&resolution).protocol(), Protocol::Https);
    assert_eq!(errors(&resolution, "r"), ["TCPProxyError/Overridden"]);
}
