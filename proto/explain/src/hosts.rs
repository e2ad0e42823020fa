//! Finds a request's virtual host: exact domain, then the longest wildcard, then `*`.

use sesame_proto::schema::{Listener, Port, RouteTable, VirtualHost};

/// `hostname` is exact, a wildcard, or empty for all hosts.
pub(super) fn covers(hostname: &str, host: &str) -> bool {
    match hostname.strip_prefix('*') {
        // `*.a.test` covers only subdomains of `a.test`.
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => hostname.is_empty() || hostname == host,
    }
}

/// Returns the most specific listener that uses the route table and covers the domain.
pub(super) fn owner<'p>(port: &'p Port, table: &str, domain: &str) -> Option<&'p Listener> {
    port.listeners.iter().find(|it| {
        it.route_table == table && (it.hostname == domain || covers(&it.hostname, domain))
    })
}

/// `host` must be lower case, without a port.
pub(super) fn find<'t>(table: &'t RouteTable, host: &str) -> Option<&'t VirtualHost> {
    let named = |domain: &str| table.virtual_hosts.iter().find(|it| it.domain == domain);
    let wildcards = table.virtual_hosts.iter();
    let wildcards = wildcards.filter(|it| it.domain.starts_with("*.") && covers(&it.domain, host));
    named(host)
        .or_else(|| wildcards.max_by_key(|it| it.domain.len()))
        .or_else(|| named("*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_domain_has_a_host() {
        let domains = ["a.test", "*.b.a.test", "*.a.test"];
        let table = |domains: &[&str]| RouteTable {
            name: "http/80".to_owned(),
            virtual_hosts: domains
                .iter()
                .map(|domain| VirtualHost {
                    domain: (*domain).to_owned(),
                    ..VirtualHost::default()
                })
                .collect(),
        };
        let found = |host: &str| find(&table(&domains), host).map(|it| it.domain.clone());
        for (host, expected) in [
            ("a.test", Some("a.test")),
            ("x.a.test", Some("*.a.test")),
            ("b.a.test", Some("*.a.test")),
            ("x.b.a.test", Some("*.b.a.test")),
            ("x.y.b.a.test", Some("*.b.a.test")),
            ("ba.test", None),
            (".a.test", None),
            ("a.test.", None),
        ] {
            assert_eq!(found(host).as_deref(), expected, "{host}");
        }
        let all = table(&["a.test", "*"]);
        assert_eq!(find(&all, "other").map(|it| it.domain.as_str()), Some("*"));
    }
}
