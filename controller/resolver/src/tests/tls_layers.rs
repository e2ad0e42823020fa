//! Precedence of a host's TLS settings and routes: the Gateway's listeners, then HTTPProxies, then
//! Ingresses. Ingresses send requests to `b`, HTTPProxies to `a`, and HTTPRoutes to `c`.

use super::http_proxies::proxy;
use super::ingresses::{CLASS, ingress, path, rule};
use super::router::{GET, Request, answer};
use super::tls::{certificate, https, secret};
use super::{HTTP, gateway, resolved, route};

fn of_ingress(host: &str, pair: &str, prefix: &str) -> String {
    let rules = rule(host, &[path(prefix, "Prefix", "b")]);
    let tls = match pair {
        "" => String::new(),
        pair => format!("tls: [{{hosts: [{host}], secretName: {pair}}}]\n"),
    };
    ingress("i", &format!("{tls}{rules}"))
}

fn of_proxy(host: &str, pair: &str, prefix: &str) -> String {
    proxy(
        "p",
        &format!(
            "virtualhost: {{fqdn: {host}, tls: {{secretName: {pair}}}}}\nroutes: [{{conditions: [{{prefix: {prefix}}}], \
             services: [{{name: a, port: 80}}]}}]"
        ),
    )
}

/// Name, Gateway listeners, other objects, Secret presented for `a.test`, and expected responses by
/// port, host and path.
type Row<'a> = (
    &'a str,
    String,
    Vec<String>,
    &'a str,
    &'a [(u32, &'a str, &'a str, &'a str)],
);

fn rows() -> Vec<Row<'static>> {
    let plain = |more: &str| format!("{HTTP}\n{more}");
    let of_route = route(
        "r",
        "hostnames: [a.test]\nrules: [{backendRefs: [{name: c, port: 80}]}]",
    );
    let both = || {
        vec![
            of_ingress("a.test", "one", "/i"),
            of_proxy("a.test", "two", "/"),
        ]
    };
    vec![
        (
            "proxy before Ingress",
            plain(""),
            both(),
            "two",
            &[
                (443, "a.test", "/i", "web/b/80"),
                (443, "a.test", "/", "web/a/80"),
            ],
        ),
        (
            "Ingress without a proxy",
            plain(""),
            vec![of_ingress("a.test", "one", "/i")],
            "one",
            &[(443, "a.test", "/i", "web/b/80")],
        ),
        (
            "Gateway listener before proxy",
            plain(&https("own", "a.test", "{name: g}")),
            both(),
            "g",
            &[
                (443, "a.test", "/i", "web/b/80"),
                (443, "a.test", "/", "web/a/80"),
            ],
        ),
        (
            "Gateway listener that does not allow the proxy's namespace",
            plain(&https("own", "a.test", "{name: g}")),
            vec![of_proxy("a.test", "two", "/").replace("namespace: web", "namespace: far")],
            "g",
            &[(443, "a.test", "/", "404")],
        ),
        (
            "proxy with a more specific hostname",
            plain(&https("own", "*.test", "{name: g}")),
            both(),
            "two",
            &[
                (443, "a.test", "/", "web/a/80"),
                (443, "b.test", "/", "404"),
            ],
        ),
        (
            "Ingress without TLS on a Gateway listener",
            plain(&https("own", "", "{name: g}")),
            vec![of_ingress("a.test", "", "/")],
            "",
            &[(443, "a.test", "/", "web/b/80")],
        ),
        (
            "HTTPRoute on the plain port only",
            plain(""),
            vec![of_ingress("a.test", "one", "/"), of_route],
            "one",
            &[
                (443, "a.test", "/", "web/b/80"),
                (80, "a.test", "/", "web/c/80"),
            ],
        ),
        (
            "HTTP redirect and Ingress without TLS",
            plain(""),
            vec![
                of_proxy("a.test", "two", "/"),
                of_ingress("a.test", "", "/.well-known/acme-challenge"),
            ],
            "two",
            &[
                (80, "a.test", "/.well-known/acme-challenge/t", "web/b/80"),
                (80, "a.test", "/other", "301 https:0"),
            ],
        ),
    ]
}

#[test]
fn tls_of_host_comes_from_highest_layer() {
    let pems = ["one", "two", "g"].map(|name| {
        let pem = certificate(&["a.test", "*.test"]);
        secret("web", name, &pem.certificate, &pem.key)
    });
    for (name, listeners, objects, pair, answers) in rows() {
        let all = gateway(&listeners) + CLASS + &pems.concat() + &objects.concat();
        let resolution = resolved(&all);
        let snapshot = &resolution.gateways[0].snapshot;
        let listeners = snapshot.ports.iter().flat_map(|port| &port.listeners);
        let mut tls = listeners.filter(|it| it.hostname == "a.test");
        let tls = tls.find_map(|it| it.tls.as_ref());
        let keys = tls.map(|tls| tls.keys.join(" ")).unwrap_or_default();
        let expected = match pair {
            "" => String::new(),
            pair => format!("Secret/web/{pair}"),
        };
        assert_eq!(keys, expected, "{name}");
        for (port, host, path, expected) in answers {
            let request = Request {
                port: *port,
                sni: host,
                host,
                path,
                ..GET
            };
            assert_eq!(answer(snapshot, &request), *expected, "{name}: {path}");
        }
    }
}
