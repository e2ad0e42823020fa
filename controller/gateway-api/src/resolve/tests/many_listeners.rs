//! On ports with many HTTPS listeners, a listener responds with 421 for another listener's hostname
//! only if its own certificates contain the hostname.

use std::fmt::Write as _;

use super::router::{GET, Request, answer};
use super::tls::{certificate, secret};
use super::{gateway, resolved, route};

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
