//! Requests must not reach other objects because one is left out, or because their order changes.

use super::super::{Conversion, as_table};
use super::equivalence::from;
use super::parse;

/// Returns an Ingress for a host, or one with only a default backend.
fn ingress(name: &str, host: &str, annotations: &str) -> String {
    let backend = "service: {name: app, port: {number: 80}}";
    let spec = if host.is_empty() {
        format!("defaultBackend: {{{backend}}}")
    } else {
        let path = format!("{{path: /, pathType: Prefix, backend: {{{backend}}}}}");
        format!("rules: [{{host: {host:?}, http: {{paths: [{path}]}}}}]")
    };
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
        metadata: {{name: {name}, namespace: shop, annotations: {{{annotations}}}}}\n\
        spec: {{ingressClassName: nginx, {spec}}}\n---\n"
    )
}

fn proxy(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: projectcontour.io/v1\nkind: HTTPProxy\n\
        metadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n---\n"
    )
}

fn nginx(text: &str, accepted: &[&str]) -> Conversion {
    from("ingress-nginx", &parse(text), accepted)
}

fn contour(text: &str) -> Conversion {
    from("contour", &parse(text), &[])
}

fn routes(conversion: &Conversion) -> Vec<&str> {
    let objects = conversion.objects.iter();
    let routes = objects.filter(|it| it["kind"] == "HTTPRoute");
    routes
        .filter_map(|it| it["metadata"]["name"].as_str())
        .collect()
}

const SNIPPET: &str = r#"nginx.ingress.kubernetes.io/configuration-snippet: "deny all;""#;
const ALLOW: &str = "nginx.ingress.kubernetes.io/whitelist-source-range: 10.0.0.0/8";
const PEERS: &str = "ipAllowPolicy: [{source: Peer, cidr: 10.0.0.0/8}]";
const SERVICES: &str = "services: [{name: app, port: 80}]";

#[test]
fn refused_ingress_stops_wider_hosts() {
    let text = ingress("admin", "admin.example.com", SNIPPET)
        + &ingress("wild", "*.example.com", "")
        + &ingress("every", "", "")
        + &ingress("other", "www.example.org", "");
    assert_eq!(routes(&nginx(&text, &[])), ["other"]);
    let accepted = nginx(&text, &["configuration-snippet"]);
    assert_eq!(routes(&accepted), ["admin", "every", "other", "wild"]);
}

#[test]
fn refused_ingress_stops_sharers_of_its_alias() {
    let alias = "nginx.ingress.kubernetes.io/server-alias: x.example.com";
    let text = ingress("b", "b.example.com", &format!("{alias}, {SNIPPET}"))
        + &ingress("c", "c.example.com", alias);
    assert!(routes(&nginx(&text, &[])).is_empty());
}

#[test]
fn refused_proxy_stops_wider_roots() {
    let refused = [
        "{fqdn: admin.example.com, tls: {secretName: c, clientValidation: {caSecret: x}}}",
        "{fqdn: admin.example.com, ipAllowPolicy: [{source: Peer, cidr: 10.0.0.0/8}, \
            {source: Remote, cidr: 11.0.0.0/8}]}",
    ];
    for host in refused {
        let text = proxy(
            "admin",
            &format!("{{virtualhost: {host}, routes: [{{{SERVICES}}}]}}"),
        ) + &proxy(
            "wild",
            &format!("{{virtualhost: {{fqdn: \"*.example.com\"}}, routes: [{{{SERVICES}}}]}}"),
        );
        assert!(routes(&contour(&text)).is_empty(), "{host}");
    }
}

#[test]
fn oldest_ingress_keeps_its_path() {
    let old = ingress("old", "a.example.com", ALLOW);
    let old = old.replace(
        "name: old,",
        "name: old, creationTimestamp: '2020-01-01T00:00:00Z',",
    );
    let text = ingress("new", "a.example.com", "") + &old;
    let conversion = nginx(&text, &[]);
    assert!(conversion.is_complete(), "{}", as_table(&conversion));
    assert_eq!(routes(&conversion), ["old"]);
    assert!(as_table(&conversion).contains("an older Ingress has the same host and path"));
}

#[test]
fn own_route_precedes_equal_included_route() {
    let root = format!(
        "{{virtualhost: {{fqdn: a.example.com}}, \
        includes: [{{name: kid, conditions: [{{prefix: /kid}}]}}], \
        routes: [{{conditions: [{{prefix: /kid}}], {SERVICES}, {PEERS}}}]}}"
    );
    let text = proxy("root", &root) + &proxy("kid", &format!("{{routes: [{{{SERVICES}}}]}}"));
    let conversion = contour(&text);
    assert_eq!(routes(&conversion), ["root"], "{}", as_table(&conversion));
}

#[test]
fn unknown_class_is_refused() {
    let text = ingress("kong", "a.example.com", "konghq.com/plugins: key-auth");
    let text = text.replace("ingressClassName: nginx", "ingressClassName: kong");
    let conversion = nginx(&text, &[]);
    assert!(routes(&conversion).is_empty());
    let report = as_table(&conversion);
    assert!(
        report.contains("add its IngressClass to the input"),
        "{report}"
    );
    let class = "apiVersion: networking.k8s.io/v1\nkind: IngressClass\n\
        metadata: {name: kong}\nspec: {controller: k8s.io/ingress-nginx}\n";
    let conversion = nginx(&(text + class), &[]);
    assert_eq!(routes(&conversion), ["kong"]);
    let report = as_table(&conversion);
    assert!(report.contains("not carried"), "{report}");
}

#[test]
fn guard_with_another_prefix_is_refused() {
    let text = ingress("a", "a.example.com", "custom.nginx/auth-type: basic");
    assert!(routes(&nginx(&text, &[])).is_empty());
}

#[test]
fn annotation_that_is_off_is_unneeded() {
    for (name, value) in [
        ("enable-global-auth", "false"),
        ("limit-connections", "0"),
        ("auth-snippet", ""),
        ("auth-tls-verify-client", "off"),
    ] {
        let annotation = format!("nginx.ingress.kubernetes.io/{name}: {value:?}");
        let conversion = nginx(&ingress("a", "a.example.com", &annotation), &[]);
        assert!(conversion.is_complete(), "{}", as_table(&conversion));
    }
}

#[test]
fn group_without_expression_has_one_verdict() {
    let target = "nginx.ingress.kubernetes.io/rewrite-target: /$2";
    let conversion = nginx(&ingress("a", "a.example.com", target), &[]);
    let rows = conversion.rows.iter().flat_map(|it| &it.rows);
    let rows = rows.filter(|it| it.path.ends_with("rewrite-target"));
    assert_eq!(rows.count(), 1);
}

#[test]
fn rules_keep_their_order() {
    let route = |name: &str| {
        format!("{{conditions: [{{header: {{name: {name}, present: true}}}}], {SERVICES}")
    };
    let routes = format!(
        "{}}}, {}, {PEERS}}}, {}}}",
        route("a"),
        route("b"),
        route("c")
    );
    let text = proxy(
        "a",
        &format!("{{virtualhost: {{fqdn: a.example.com}}, routes: [{routes}]}}"),
    );
    let conversion = contour(&text);
    let found = conversion
        .objects
        .iter()
        .find(|it| it["kind"] == "HTTPRoute");
    let rules = found.expect("a route")["spec"]["rules"].as_array();
    assert_eq!(rules.map(Vec::len), Some(3));
}

#[test]
fn repeated_includes_are_bounded() {
    let mut text = String::new();
    for depth in 0..14 {
        let host = if depth == 0 {
            "virtualhost: {fqdn: a.example.com}, "
        } else {
            ""
        };
        let include = |number| {
            let next = depth + 1;
            format!("{{name: p{next}, conditions: [{{prefix: /x{number}}}]}}")
        };
        let includes: Vec<String> = (0..4).map(include).collect();
        let includes = includes.join(", ");
        text += &proxy(
            &format!("p{depth}"),
            &format!("{{{host}includes: [{includes}]}}"),
        );
    }
    text += &proxy("p14", &format!("{{routes: [{{{SERVICES}}}]}}"));
    let conversion = contour(&text);
    assert!(as_table(&conversion).contains("include each HTTPProxy fewer times"));
    assert!(routes(&conversion).is_empty());
}

#[test]
fn protected_text_prefix_is_refused() {
    let admin = ingress("admin", "a.example.com", ALLOW);
    let admin = admin.replace(
        "path: /, pathType: Prefix",
        "path: /admin, pathType: ImplementationSpecific",
    );
    let conversion = nginx(&admin, &[]);
    assert_eq!(routes(&conversion), ["admin"], "{}", as_table(&conversion));
    let open = ingress("open", "a.example.com", "");
    assert!(routes(&nginx(&(admin + &open), &[])).is_empty());
    for (wider, is_written) in [("", false), (PEERS, true)] {
        let routes_of = format!(
            "[{{conditions: [{{prefix: /adm}}], {SERVICES}, {PEERS}}}, {{{SERVICES}, {wider}}}]"
        );
        let spec = format!("{{virtualhost: {{fqdn: a.example.com}}, routes: {routes_of}}}");
        let conversion = contour(&proxy("a", &spec));
        assert_eq!(!routes(&conversion).is_empty(), is_written, "{wider}");
    }
}

#[test]
fn invalid_alias_stops_its_ingress() {
    let alias = "nginx.ingress.kubernetes.io/server-alias: 'not a host'";
    let conversion = nginx(&ingress("shop", "shop.test", alias), &[]);
    assert!(!conversion.is_complete());
    assert!(routes(&conversion).is_empty());
}

#[test]
fn parts_of_route_sort_in_their_order() {
    let paths: Vec<String> = (0..200)
        .map(|index| {
            format!(
                "{{path: /p{index:03}, pathType: Exact, backend: {{service: {{name: app{index}, port: \
                 {{number: 80}}}}}}}}"
            )
        })
        .collect();
    let text = format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: shop, namespace: shop}}\nspec: \
         {{ingressClassName: nginx, rules: [{{host: shop.test, http: {{paths: [{}]}}}}]}}\n",
        paths.join(", ")
    );
    let conversion = nginx(&text, &[]);
    let names = routes(&conversion);
    assert!(names.len() > 10, "{names:?}");
    let objects = conversion
        .objects
        .iter()
        .filter(|it| it["kind"] == "HTTPRoute");
    let mut first: Vec<(&str, &str)> = objects
        .map(|it| {
            let path = &it["spec"]["rules"][0]["matches"][0]["path"]["value"];
            (
                it["metadata"]["name"].as_str().expect("a name"),
                path.as_str().expect("a path"),
            )
        })
        .collect();
    first.sort_unstable();
    assert!(first.is_sorted_by_key(|it| it.1), "{first:?}");
}

#[test]
fn field_with_its_default_value_stops_nothing() {
    let spec = "{virtualhost: {fqdn: shop.test, tls: {secretName: shop, passthrough: false, \
                enableFallbackCertificate: false}}, routes: [{services: [{name: shop, port: 80}]}]}";
    let conversion = contour(&proxy("shop", spec));
    assert!(conversion.is_complete(), "{}", as_table(&conversion));
    assert!(!routes(&conversion).is_empty());
}
