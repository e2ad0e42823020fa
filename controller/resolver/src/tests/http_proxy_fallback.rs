//! `tls.enableFallbackCertificate` in HTTPProxies: clients without a known server name reach only
//! hosts that opt in, with all their checks.

use std::sync::Arc;

use sesame_kit::certs::Authority;
use sesame_proto::schema::{Listener, Protocol, Snapshot, VirtualHost};

use super::access_policies::policy;
use super::http_proxies::{NONE, errors, proxy, warnings};
use super::ingresses::{CLASS, ingress, path, rule};
use super::router::{GET, Request, answer};
use super::tls::{certificate, secret};
use super::{HTTP, gateway, indent, world};
use crate::{Options, Resolution, resolve};
use sesame_kinds::api::SesameConfiguration;

const UNKNOWN: &str = "unknown.example";
const OPTS_IN: &str = "enableFallbackCertificate: true";
const SETTINGS: &str = "{fallbackCertificate: {namespace: ops, name: fallback}}";
const DELEGATION: &str = "---\nkind: TLSCertificateDelegation\nmetadata: {name: d, namespace: ops}\n\
                          spec: {delegations: [{secretName: fallback, targetNamespaces: [web]}]}\n";

fn secrets() -> String {
    let pem = certificate(&["*.test"]);
    let own = secret("web", "s", &pem.certificate, &pem.key);
    own + &secret("ops", "fallback", &pem.certificate, &pem.key)
}

fn resolved(settings: &str, listeners: &str, objects: &str) -> Resolution {
    let text = format!("spec: {{ingress: {settings}}}");
    let configuration: SesameConfiguration = serde_saphyr::from_str(&text).expect("settings");
    let options = Options {
        configuration: Some(Arc::new(configuration)),
        ..Options::default()
    };
    let sets = "  allowedListeners: {namespaces: {from: All}}\n";
    let own = gateway(listeners) + sets + CLASS + &secrets();
    resolve(&world(&(own + objects)), &options)
}

fn with(objects: &[String]) -> Resolution {
    resolved(SETTINGS, HTTP, &(DELEGATION.to_owned() + &objects.concat()))
}

/// `tls` follows `secretName`.
fn host(name: &str, fqdn: &str, tls: &str, service: &str) -> String {
    host_with(name, &format!("fqdn: '{fqdn}'"), tls, service)
}

fn host_with(name: &str, virtualhost: &str, tls: &str, service: &str) -> String {
    let spec = format!(
        "virtualhost: {{{virtualhost}, tls: {{secretName: s, {tls}}}}}\nroutes: [{{services: [{{name: {service}, \
         port: 80}}]}}]"
    );
    proxy(name, &spec)
}

fn snapshot(resolution: &Resolution) -> &Snapshot {
    &resolution.gateways[0].snapshot
}

fn ask(resolution: &Resolution, sni: &str, host: &str, path: &str) -> String {
    let request = Request {
        port: 443,
        sni,
        host,
        path,
        headers: &[("host", host)],
        ..GET
    };
    answer(snapshot(resolution), &request)
}

fn listener<'r>(resolution: &'r Resolution, hostname: &str) -> Option<&'r Listener> {
    let ports = snapshot(resolution).ports.iter();
    let mut listeners = ports
        .filter(|it| it.port == 443)
        .flat_map(|it| &it.listeners);
    listeners.find(|it| it.hostname == hostname)
}

fn virtual_host<'r>(resolution: &'r Resolution, listener: &Listener) -> &'r VirtualHost {
    let mut tables = snapshot(resolution).route_tables.iter();
    let table = tables.find(|it| it.name == listener.route_table);
    let mut hosts = table.expect("a table").virtual_hosts.iter();
    hosts.find(|it| it.domain == "a.test").expect("a host")
}

/// True if clients without a known server name get the fallback certificate.
fn has_fallback(resolution: &Resolution) -> bool {
    let keys = listener(resolution, "").and_then(|it| it.tls.as_ref());
    keys.is_some_and(|tls| tls.keys.iter().all(|key| key.starts_with("Secret/ops/")))
}

#[test]
fn only_hosts_that_opt_in_are_reached() {
    let without_tls =
        "virtualhost: {fqdn: plain.c.test}\nroutes: [{services: [{name: b, port: 80}]}]";
    let resolution = with(&[
        host("a", "a.test", OPTS_IN, "a"),
        host("b", "b.test", "enableFallbackCertificate: false", "b"),
        host("c", "*.c.test", OPTS_IN, "c"),
        host("exact", "exact.c.test", "", "b"),
        proxy("plain", without_tls),
    ]);
    for (sni, host, expected) in [
        (UNKNOWN, "a.test", "web/a/80"),
        (UNKNOWN, "b.test", "421"),
        (UNKNOWN, "x.c.test", "web/c/80"),
        (UNKNOWN, "exact.c.test", "421"),
        (UNKNOWN, "plain.c.test", "421"),
        (UNKNOWN, "other.test", "404"),
        ("a.test", "a.test", "web/a/80"),
        ("a.test", "b.test", "421"),
        ("b.test", "a.test", "421"),
        ("b.test", "b.test", "web/b/80"),
        ("x.c.test", "plain.c.test", "web/b/80"),
    ] {
        assert_eq!(ask(&resolution, sni, host, "/"), expected, "{sni} {host}");
    }
    assert!(has_fallback(&resolution));
    for name in ["a", "b", "c", "exact"] {
        assert_eq!(errors(&resolution, name), NONE, "{name}");
    }
    for name in ["a", "b"] {
        assert_eq!(warnings(&resolution, name), NONE, "{name}");
    }
}

#[test]
fn many_listeners_do_not_open_hosts_below_wildcards() {
    let mut objects = vec![host("c", "*.c.test", OPTS_IN, "c")];
    for number in 0..130 {
        let name = format!("h{number}");
        objects.push(host(&name, &format!("{name}.c.test"), "", "b"));
    }
    let resolution = with(&objects);
    assert_eq!(ask(&resolution, UNKNOWN, "x.c.test", "/"), "web/c/80");
    assert_eq!(ask(&resolution, UNKNOWN, "h7.c.test", "/"), "421");
    assert_eq!(ask(&resolution, "h7.c.test", "h7.c.test", "/"), "web/b/80");
}

#[test]
fn fallback_serves_same_virtual_host() {
    let virtualhost = "fqdn: a.test, ipAllowPolicy: [{source: Peer, cidr: 192.0.2.0/24}]";
    let rules = rule("a.test", &[path("/x", "Prefix", "b")]);
    let filter = ", ipFilter: {deny: [198.51.100.0/24]}";
    let resolution = with(&[
        host_with("a", virtualhost, OPTS_IN, "a"),
        host("wide", "*.test", OPTS_IN, "c"),
        ingress("i", &rules),
        policy("p", "kind: Gateway, name: gw", filter),
    ]);
    let [own, fallback] = ["a.test", ""].map(|hostname| {
        let listener = listener(&resolution, hostname).expect("a listener");
        virtual_host(&resolution, listener)
    });
    assert_eq!(own, fallback);
    for sni in [UNKNOWN, "a.test"] {
        assert_eq!(ask(&resolution, sni, "a.test", "/"), "web/a/80", "{sni}");
        assert_eq!(ask(&resolution, sni, "a.test", "/x"), "web/b/80", "{sni}");
    }
}

#[test]
fn other_listeners_without_hostname_take_precedence() {
    let certificate = "tls: {certificateRefs: [{name: s}]}";
    let any = |rest: &str| format!("{{name: any, port: 443, {rest}}}");
    let https = any(&format!("protocol: HTTPS, {certificate}"));
    let passing = any("protocol: TLS, tls: {mode: Passthrough}");
    let set = format!(
        "---\nkind: ListenerSet\nmetadata: {{name: s, namespace: web}}\nspec: {{parentRef: {{name: gw}}, listeners: \
         [{https}]}}\n"
    );
    let all = ingress(
        "i",
        "tls: [{secretName: s}]\ndefaultBackend: {service: {name: b, port: {number: 80}}}",
    );
    for (listeners, objects) in [
        (format!("{HTTP}\n- {https}"), ""),
        (format!("{HTTP}\n- {passing}"), ""),
        (HTTP.to_owned(), &*set),
        (HTTP.to_owned(), &*all),
    ] {
        let own = host("a", "a.test", OPTS_IN, "a");
        let resolution = resolved(
            SETTINGS,
            &listeners,
            &(DELEGATION.to_owned() + &own + objects),
        );
        let what = format!("{listeners} {objects}");
        assert!(listener(&resolution, "").is_some(), "{what}");
        assert!(!has_fallback(&resolution), "{what}");
        assert_eq!(
            warnings(&resolution, "a"),
            ["TLSError/Overridden"],
            "{what}"
        );
        assert_eq!(errors(&resolution, "a"), NONE, "{what}");
        for (sni, expected) in [("a.test", true), (UNKNOWN, false)] {
            let reached = ask(&resolution, sni, "a.test", "/") == "web/a/80";
            assert_eq!(reached, expected, "{sni} {what}");
        }
    }
}

#[test]
fn missing_fallback_leaves_own_server_name_alone() {
    let opting = host("a", "a.test", OPTS_IN, "a");
    let granted = "---\nkind: ReferenceGrant\nmetadata: {name: g, namespace: ops}\nspec: {from: [{group: \
                   projectcontour.io, kind: HTTPProxy, namespace: web}], to: [{group: '', kind: Secret}]}\n";
    let gone = "{fallbackCertificate: {namespace: ops, name: gone}}";
    let own = "{fallbackCertificate: {namespace: web, name: s}}";
    let for_gone = DELEGATION.replace("secretName: fallback", "secretName: gone");
    for (settings, grant, error) in [
        ("{}", DELEGATION, Some("FallbackNotPresent")),
        (SETTINGS, "", Some("FallbackNotDelegated")),
        (gone, DELEGATION, Some("FallbackNotDelegated")),
        (gone, &for_gone, Some("FallbackNotValid")),
        (SETTINGS, DELEGATION, None),
        (SETTINGS, granted, None),
        (own, "", None),
    ] {
        let resolution = resolved(settings, HTTP, &format!("{grant}{opting}"));
        let expected: Vec<String> = error.iter().map(|it| format!("TLSError/{it}")).collect();
        let what = format!("{settings} {grant}");
        assert_eq!(errors(&resolution, "a"), expected, "{what}");
        assert_eq!(
            listener(&resolution, "").is_some(),
            error.is_none(),
            "{what}"
        );
        assert_eq!(
            ask(&resolution, "a.test", "a.test", "/"),
            "web/a/80",
            "{what}"
        );
    }
}

#[test]
fn each_root_needs_its_own_permission() {
    let elsewhere = host("b", "b.test", OPTS_IN, "b").replace("namespace: web", "namespace: other");
    let pem = certificate(&["b.test"]);
    let pair = secret("other", "s", &pem.certificate, &pem.key);
    let resolution = with(&[host("a", "a.test", OPTS_IN, "a"), elsewhere, pair]);
    assert_eq!(ask(&resolution, UNKNOWN, "a.test", "/"), "web/a/80");
    assert_eq!(ask(&resolution, UNKNOWN, "b.test", "/"), "421");
}

#[test]
fn hosts_with_other_protection_are_held() {
    let ca = Authority::new("clients");
    let ca = format!(
        "---\nkind: Secret\ntype: Opaque\nmetadata: {{name: ca, namespace: web}}\nstringData:\n  ca.crt: |\n{}\n",
        indent(ca.pem(), 4)
    );
    let with_tls = |tls: &str| host("a", "a.test", &format!("{OPTS_IN}{tls}"), "a");
    let with_host = |rest: &str| host_with("a", &format!("fqdn: a.test, {rest}"), OPTS_IN, "a");
    let passing = proxy(
        "a",
        &format!(
            "virtualhost: {{fqdn: a.test, tls: {{passthrough: true, {OPTS_IN}}}}}\n\
             tcpproxy: {{services: [{{name: a, port: 80}}]}}"
        ),
    );
    let other = host("b", "b.test", OPTS_IN, "b");
    for opting in [
        with_tls(", clientValidation: {caSecret: ca}"),
        with_tls(", clientValidation: {skipClientCertValidation: true}"),
        with_host("authorization: {extensionRef: {name: x}}"),
        with_host("jwtProviders: [{name: j}]"),
        passing,
    ] {
        let resolution = with(&[other.clone(), opting.clone(), ca.clone()]);
        let found = errors(&resolution, "a");
        let expected = "TLSError/TLSIncompatibleFeatures".to_owned();
        assert!(found.contains(&expected), "{opting}: {found:?}");
        // Neither a wider listener nor the fallback listener serves the host.
        let held = listener(&resolution, "a.test").expect("a listener");
        assert_eq!(held.protocol(), Protocol::Tls, "{opting}");
        assert!(held.tls.is_none() && held.l4_routes.is_empty(), "{opting}");
        assert_eq!(ask(&resolution, UNKNOWN, "a.test", "/"), "421", "{opting}");
        assert_eq!(
            ask(&resolution, UNKNOWN, "b.test", "/"),
            "web/b/80",
            "{opting}"
        );
    }
}

#[test]
fn hosts_that_cannot_share_fallback_keep_server_name() {
    let tcp = "\ntcpproxy: {services: [{name: a, port: 80}]}";
    for (tls, more, warning) in [
        (
            ", minimumProtocolVersion: '1.3'",
            "",
            "TLSIncompatibleFeatures",
        ),
        (
            ", maximumProtocolVersion: '1.2'",
            "",
            "TLSIncompatibleFeatures",
        ),
        ("", tcp, "IgnoredField"),
    ] {
        let opting = host("a", "a.test", &format!("{OPTS_IN}{tls}"), "a");
        let opting = opting.trim_end().to_owned() + &more.replace('\n', "\n  ") + "\n";
        let resolution = with(&[host("b", "b.test", OPTS_IN, "b"), opting.clone()]);
        let expected = [format!("TLSError/{warning}")];
        assert_eq!(warnings(&resolution, "a"), expected, "{opting}");
        assert_eq!(errors(&resolution, "a"), NONE, "{opting}");
        assert!(listener(&resolution, "a.test").is_some_and(|it| it.tls.is_some()));
        assert_eq!(ask(&resolution, UNKNOWN, "a.test", "/"), "421", "{opting}");
    }
}
