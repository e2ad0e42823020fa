//! Explains the protection against forged requests as Envoy applies it.

use sesame_proto::schema::Csrf;

use super::compared::Compared;

/// Returns the reason if one of the checks rejects the request.
pub(super) fn refusal(checks: &[Csrf], request: &Compared) -> Option<String> {
    if !Csrf::METHODS.contains(&request.method.as_str()) {
        return None;
    }
    let target = host_and_port(&format!("http://{}", request.authority)).to_owned();
    let header = request
        .filled("origin")
        .or_else(|| request.filled("referer"));
    let Some(header) = header else {
        let Csrf { name, .. } = checks.first()?;
        return Some(format!(
            "{name} rejects the request, because it has neither Origin nor Referer"
        ));
    };
    let origin = host_and_port(&header);
    if origin == target {
        return None;
    }
    let rejects = |it: &&Csrf| !it.additional_origins.iter().any(|it| it == origin);
    let Csrf { name, .. } = checks.iter().find(rejects)?;
    Some(format!(
        "{name} rejects the request, because its origin {origin:?} is neither {target:?} nor an \
         additional origin"
    ))
}

pub(super) fn describe(check: &Csrf) -> String {
    let Csrf {
        name,
        additional_origins,
    } = check;
    let methods = Csrf::METHODS.join(", ");
    let others = if additional_origins.is_empty() {
        String::new()
    } else {
        format!(" or {}", additional_origins.join(", "))
    };
    format!(
        "{name} rejects {methods} requests with 403 unless their Origin or Referer has the \
         request's host{others}"
    )
}

/// Returns text that is not a URL unchanged, as Envoy does.
fn host_and_port(url: &str) -> &str {
    let Some((_, rest)) = url.split_once("://") else {
        return url;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    if host.is_empty() { url } else { host }
}

#[cfg(test)]
mod tests {
    use sesame_proto::schema::{
        Edge, Listener, Port, Protocol, RequestFilters, RouteTable, Snapshot, VirtualHost,
    };

    use super::super::Explainer;
    use super::super::compared::{Prepared, prepare};
    use super::super::outcome::ExplainedOutcome;
    use super::super::request::ExplainRequest;
    use super::*;

    fn reason(method: &str, url: &str, headers: &[&str]) -> Option<String> {
        let request = ExplainRequest::parse(method, url, headers, None).unwrap();
        let Prepared::Compared(compared) = prepare(&request, Edge::default()) else {
            panic!("{url}");
        };
        let check = |name: &str, origins: &[&str]| Csrf {
            name: name.to_owned(),
            additional_origins: origins.iter().map(ToString::to_string).collect(),
        };
        let checks = [
            check("first", &["b.test", "c.test:8443"]),
            check("second", &["c.test:8443"]),
        ];
        refusal(&checks, &compared)
    }

    #[test]
    fn origin_is_compared_with_host_and_all_policies() {
        let url = "https://a.test:8443/x";
        for (method, headers, name) in [
            ("GET", &["origin: https://evil.test"][..], None),
            ("OPTIONS", &[], None),
            ("POST", &[], Some("first")),
            ("PATCH", &["origin: null"], Some("first")),
            ("PUT", &["origin: https://a.test"], Some("first")),
            ("DELETE", &["origin: https://a.test:8443"], None),
            // Envoy ignores schemes.
            ("POST", &["origin: http://a.test:8443"], None),
            ("POST", &["origin: https://b.test"], Some("second")),
            ("POST", &["origin: https://b.test:443"], Some("first")),
            ("POST", &["origin: https://c.test:8443"], None),
            ("POST", &["referer: https://a.test:8443/y?z#"], None),
            (
                "POST",
                &["referer: https://evil.test/a.test:8443"],
                Some("first"),
            ),
            (
                "POST",
                &["origin: https://evil.test", "referer: https://a.test:8443/"],
                Some("first"),
            ),
        ] {
            let reason = reason(method, url, headers);
            let found = reason.as_deref().and_then(|it| it.split(' ').next());
            assert_eq!(found, name, "{method} {headers:?}");
        }
        let neither = reason("POST", url, &[]).unwrap();
        assert!(neither.ends_with("it has neither Origin nor Referer"));
    }

    #[test]
    fn forged_request_gets_403() {
        let table = RouteTable {
            name: "http/80".to_owned(),
            virtual_hosts: vec![VirtualHost {
                domain: "*".to_owned(),
                ..VirtualHost::default()
            }],
        };
        let listener = Listener {
            protocol: Protocol::Http.into(),
            route_table: table.name.clone(),
            ..Listener::default()
        };
        let snapshot = Snapshot {
            ports: vec![Port {
                port: 80,
                listeners: vec![listener],
                ..Port::default()
            }],
            route_tables: vec![table],
            filters: Some(Box::new(RequestFilters {
                csrf: vec![Csrf::default()],
                ..RequestFilters::default()
            })),
            ..Snapshot::default()
        };
        for (method, origin, expected) in [
            ("POST", "origin: http://evil.test", 403),
            ("POST", "origin: http://a.test", 404),
            ("GET", "origin: http://evil.test", 404),
        ] {
            let request = ExplainRequest::parse(method, "http://a.test/", &[origin], None);
            let explanation = Explainer::new(&snapshot).explain(&request.unwrap());
            let ExplainedOutcome::Answered { status, .. } = explanation.outcome else {
                panic!("{:?}", explanation.outcome);
            };
            assert_eq!(status, expected, "{method} {origin}");
        }
    }
}
