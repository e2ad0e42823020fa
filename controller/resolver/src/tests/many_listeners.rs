//! On ports with many HTTPS listeners, a listener responds with 421 for another listener's hostname
//! only if its own certificates contain the hostname.

use std::fmt::Write as _;

use super::http_proxies::{NONE, errors, proxy};
use super::router::{GET, Request, answer};
use super::tls::{certificate, secret};
use super::{gateway, ingresses, resolved, route};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::Reason;
use sesame_kinds::world::Kind;

const LISTENERS_PER_SET: usize = 64;

fn listener(number: usize, hostname: &str, key: &str) -> String {
    format!(
        "{{name: l{number}, port: 443, protocol: HTTPS, hostname: '{hostname}', tls: {{certificateRefs: [{{name: {key}}}]}}}}"
    )
}

fn in_sets(listeners: &[String]) -> String {
    let mut text = gateway("").replace(
        "  listeners:\n\n",
        "  listeners: []\n  allowedListeners: {namespaces: {from: All}}\n",
    );
    let mut parents = Vec::new();
    for (number, listeners_of_set) in listeners.chunks(LISTENERS_PER_SET).enumerate() {
        let listeners_of_set = listeners_of_set.join(", ");
        write!(
            text,
            "---\nkind: ListenerSet\nmetadata: {{name: s{number}, namespace: web}}\nspec:\n  parentRef: {{name: gw}}\n  \
             listeners: [{listeners_of_set}]\n"
        )
        .expect("write to a String");
        parents.push(format!("{{kind: ListenerSet, name: s{number}}}"));
    }
    let spec = format!(
        "parentRefs: [{}]\nrules: [{{backendRefs: [{{name: a, port: 80}}]}}]",
        parents.join(", ")
    );
    text + &route("r", &spec)
}

#[test]
fn listener_among_many_answers_421_for_certificate_names() {
    let count = 200;
    let mut listeners: Vec<String> = (0..count)
        .map(|n| listener(n, &format!("h{n}.example.org"), &format!("k{}", n % 4)))
        .collect();
    listeners.push(listener(count, "*.example.org", "k0"));
    listeners.push(listener(count + 1, "h0.example.com", "k3"));
    let keys = [
        certificate(&["*.example.org"]),
        certificate(&["h1.example.org"]),
        certificate(&["h2.example.org", "h3.example.org", "nobody.example.com"]),
        certificate(&["h3.example.org", "*.example.com"]),
    ];
    let keys = keys.iter().enumerate();
    let keys: String = keys
        .map(|(n, pem)| secret("web", &format!("k{n}"), &pem.certificate, &pem.key))
        .collect();
    let resolution = resolved(&(in_sets(&listeners) + &keys));
    let snapshot = &resolution.gateways[0].snapshot;
    assert_eq!(snapshot.ports[0].listeners.len(), count + 2);
    for (sni, host, expected) in [
        ("h0.example.org", "h0.example.org", "web/a/80"),
        ("h0.example.org", "h4.example.org", "421"),
        ("h0.example.org", "h0.example.com", "404"),
        ("h1.example.org", "h2.example.org", "404"),
        ("h2.example.org", "h3.example.org", "421"),
        // No listener covers this host.
        ("h2.example.org", "nobody.example.com", "404"),
        ("h3.example.org", "h0.example.com", "421"),
        ("other.example.org", "other.example.org", "web/a/80"),
        ("other.example.org", "h7.example.org", "421"),
        ("other.example.org", "h0.example.com", "404"),
        ("h0.example.com", "h0.example.com", "web/a/80"),
        ("h0.example.com", "h3.example.org", "421"),
        ("h0.example.com", "h2.example.org", "404"),
    ] {
        let request = Request {
            port: 443,
            sni,
            host,
            ..GET
        };
        let answered = answer(snapshot, &request);
        assert_eq!(answered, expected, "SNI {sni}, host {host}");
    }
    // Only the wildcard listener's route table has virtual hosts for all other hostnames.
    let hosts = snapshot.route_tables.iter();
    let hosts: usize = hosts.map(|table| table.virtual_hosts.len()).sum();
    assert!(hosts < 4 * count, "{hosts} virtual hosts");
}

#[test]
fn crowded_namespace_takes_no_tls_hosts_from_small_one() {
    // Hosts without a certificate also count.
    let crowded = (0..5).map(|number| {
        let hosts: Vec<String> = (0..512).map(|n| format!("h{n}.i{number}.test")).collect();
        let backend = "{service: {name: a, port: {number: 80}}}";
        let spec = format!(
            "tls: [{{hosts: [{}], secretName: gone}}]\ndefaultBackend: {backend}",
            hosts.join(", ")
        );
        let ingress = ingresses::ingress(&format!("i{number}"), &spec);
        ingress.replace("namespace: web", "namespace: greedy")
    });
    let pem = certificate(&["h.test"]);
    let small = "virtualhost: {fqdn: h.test, tls: {secretName: s}}\n\
                 routes: [{services: [{name: a, port: 80}]}]";
    let mut objects: Vec<String> = crowded.collect();
    objects.push(secret("web", "s", &pem.certificate, &pem.key));
    objects.push(proxy("r", small));
    let resolution = ingresses::with(&objects);
    assert_eq!(errors(&resolution, "r"), NONE);
    let last = Kind::Ingress.named(NamespacedName::new("greedy", "i4"));
    let conditions = &resolution.statuses.routes[&last].parents[0].conditions;
    let mut refused = conditions.iter();
    let refused = refused.find(|it| it.reason == Reason::TooManyListeners);
    let message = &refused.expect("a refused host").message;
    // The Gateway's listener, and one host and port in `web`, leave the rest.
    assert!(message.contains("2045 listeners and ports"), "{message}");
    assert!(message.contains("HTTPProxies and Ingresses in namespace"));
}
