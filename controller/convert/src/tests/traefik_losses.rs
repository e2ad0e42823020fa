//! Inputs of Traefik whose protections would be easy to lose.

use serde_json::json;

use super::super::{Conversion, as_table};
use super::equivalence::from;
use super::{find, parse};

const BACKEND: &str = "services: [{name: app, port: 80}]";

fn object(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: traefik.io/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}, namespace: a}}\n\
        spec: {spec}\n---\n"
    )
}

/// Returns an IngressRoute with more fields of its spec and of its route.
fn route(name: &str, rule: &str, spec: &str, more: &str) -> String {
    let routes = format!("[{{kind: Rule, match: '{rule}', {BACKEND}, {more}}}]");
    object(
        "IngressRoute",
        name,
        &format!("{{{spec}, routes: {routes}}}"),
    )
}

fn middleware(name: &str, spec: &str) -> String {
    object("Middleware", name, spec)
}

fn converted(text: &str) -> Conversion {
    from("traefik", &parse(text.trim_end_matches("---\n")), &[])
}

fn routes(conversion: &Conversion) -> Vec<&str> {
    let routes = conversion.objects.iter();
    let routes = routes.filter(|it| it["kind"] == "HTTPRoute");
    routes
        .filter_map(|it| it["metadata"]["name"].as_str())
        .collect()
}

#[track_caller]
fn assert_routes(text: &str, expected: &[&str]) -> Conversion {
    let conversion = converted(text);
    let report = as_table(&conversion);
    assert_eq!(routes(&conversion), expected, "{report}");
    conversion
}

const WEB: &str = "entryPoints: [web]";
const SECURE: &str = "entryPoints: [websecure], tls: {}";

#[test]
fn client_certificates_stop_every_route_with_tls() {
    let store = object(
        "TLSStore",
        "default",
        "{defaultCertificate: {secretName: d}}",
    );
    let options = |name| {
        object(
            "TLSOption",
            name,
            "{clientAuth: {secretNames: [ca], clientAuthType: RequireAndVerifyClientCert}}",
        )
    };
    let plain = route("plain", "Host(`b.io`)", WEB, "");
    let with = |name, rest: &str| options(name) + &store + &plain + rest;
    let named = "entryPoints: [websecure], tls: {options: {name: mtls}}";
    for (name, spec) in [
        ("default", SECURE),
        ("default", "entryPoints: [websecure]"),
        (
            "default",
            "entryPoints: [websecure], tls: {secretName: own}",
        ),
        ("mtls", named),
    ] {
        let secure = route("secure", "Host(`a.io`)", spec, "");
        let conversion = assert_routes(&with(name, &secure), &["plain"]);
        assert!(!conversion.is_complete(), "{spec}");
    }
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i, namespace: a}\nspec: \
        {ingressClassName: traefik, tls: [{hosts: [a.io], secretName: s}], rules: [{host: a.io, http: {paths: \
        [{path: /, pathType: Prefix, backend: {service: {name: app, port: {number: 80}}}}]}}]}\n";
    assert_routes(&with("default", ingress), &["plain"]);
    let connections = object(
        "IngressRouteTCP",
        "t",
        "{entryPoints: [websecure], tls: {secretName: s}, routes: [{match: HostSNI(`a.io`), services: [{name: \
         app, port: 1}]}]}",
    );
    let conversion = assert_routes(&with("default", &connections), &["plain"]);
    assert!(find(&conversion, "TLSRoute", "t").is_none());
}

#[test]
fn options_of_another_listener_are_refused() {
    let options = object("TLSOption", "new", "{minVersion: VersionTLS13}");
    let own = |options: &str| format!("entryPoints: [websecure], tls: {{secretName: s{options}}}");
    let with = ", options: {name: new}";
    let first = route("a", "Host(`a.io`)", &own(""), "");
    for (second, is_complete) in [("", true), (with, false)] {
        let second = route("b", "Host(`a.io`) && Path(`/x`)", &own(second), "");
        let conversion = converted(&(options.clone() + &first + &second));
        assert_eq!(
            conversion.is_complete(),
            is_complete,
            "{}",
            as_table(&conversion)
        );
    }
}

#[test]
fn unreadable_rule_stops_neighbours() {
    let auth = middleware("auth", "{basicAuth: {secret: users}}");
    let app = route("app", "Host(`a.io`)", WEB, "");
    let other = route(
        "other",
        "Host(`b.io`) && PathPrefix(`/a-long-path-that-has-priority`)",
        WEB,
        "",
    );
    let text = |rule: &str| {
        auth.clone() + &app + &other + &route("admin", rule, WEB, "middlewares: [{name: auth}]")
    };
    for (rule, expected) in [
        (
            "Host(`a.io`) && PathPrefix(`/admin`) && !Path(`/admin/health`)",
            &["other"][..],
        ),
        ("HostRegexp(`(a|b)[.]io`)", &["other"]),
        ("!Host(`c.io`) && PathPrefix(`/admin`)", &["other"]),
        ("Host(`c.io`) && !Path(`/x`)", &["app", "other"]),
    ] {
        assert_routes(&text(rule), expected);
    }
}

#[test]
fn stopped_wide_rule_stops_narrower_hosts() {
    let digest = middleware("digest", "{digestAuth: {secret: users}}");
    let wide = |priority| {
        let more = format!("priority: {priority}, middlewares: [{{name: digest}}]");
        route("wide", "PathPrefix(`/admin`)", WEB, &more)
    };
    let narrow = route("narrow", "Host(`a.io`) && Path(`/shop`)", WEB, "");
    assert_routes(&(digest.clone() + &wide(1000) + &narrow), &[]);
    assert_routes(&(digest + &wide(1) + &narrow), &["narrow"]);
}

#[test]
fn wider_rule_of_another_listener_is_a_conflict() {
    let store = object(
        "TLSStore",
        "default",
        "{defaultCertificate: {secretName: d}}",
    );
    let list = middleware("list", "{ipAllowList: {sourceRange: [10.0.0.0/8]}}");
    let own = "entryPoints: [websecure], tls: {secretName: a}";
    let app = route("app", "Host(`a.io`)", own, "");
    for (priority, expected) in [(1000, &[][..]), (1, &["app", "guard"])] {
        let more = format!("priority: {priority}, middlewares: [{{name: list}}]");
        let guard = route("guard", "PathPrefix(`/admin`)", SECURE, &more);
        let text = [&*store, &list, &app, &guard].concat();
        assert_routes(&text, expected);
    }
}

#[test]
fn rules_of_several_namespaces_keep_their_order() {
    let own = "entryPoints: [websecure], tls: {secretName: a}";
    let first = route(
        "first",
        "Host(`a.io`) && Method(`GET`)",
        own,
        "priority: 1000",
    );
    let second = route(
        "second",
        "Host(`a.io`) && Path(`/x`)",
        "entryPoints: [websecure], tls: {}",
        "",
    );
    let conversion = converted(&(first + &second.replace("namespace: a", "namespace: b")));
    let first = find(&conversion, "HTTPRoute", "first").expect("a route");
    let matches = first["spec"]["rules"][0]["matches"]
        .as_array()
        .expect("matches");
    assert!(
        matches.iter().any(|it| it["path"]["value"] == "/x"),
        "{matches:?}"
    );
}

#[test]
fn paths_of_several_middlewares_are_composed() {
    let list = [
        ("strip", "{stripPrefix: {prefixes: [/api]}}"),
        ("add", "{addPrefix: {prefix: /v2}}"),
        ("whole", "{replacePath: {path: /new}}"),
        (
            "regex",
            "{replacePathRegex: {regex: ^/api/(.*), replacement: /$1}}",
        ),
    ];
    let list: String = list
        .iter()
        .map(|(name, spec)| middleware(name, spec))
        .collect();
    let composed = |rule: &str, names: &[&str]| {
        let names: Vec<String> = names.iter().map(|it| format!("{{name: {it}}}")).collect();
        let more = format!("middlewares: [{}]", names.join(", "));
        let conversion = converted(&(list.clone() + &route("r", rule, WEB, &more)));
        let route = find(&conversion, "HTTPRoute", "r")?;
        Some(route["spec"]["rules"][0]["filters"][0]["urlRewrite"]["path"].clone())
    };
    let prefix = |value| Some(json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": value}));
    let whole = |value| Some(json!({"type": "ReplaceFullPath", "replaceFullPath": value}));
    let api = "PathPrefix(`/api`)";
    for (rule, names, expected) in [
        (api, &["strip", "add"][..], prefix("/v2/")),
        (api, &["add", "strip"], None),
        ("Path(`/api/x`)", &["strip", "add"], whole("/v2/x")),
        (api, &["whole", "add"], whole("/v2/new")),
        (api, &["strip", "regex"], None),
        (api, &["regex", "add"], None),
        ("PathPrefix(`/`)", &["strip", "add"], None),
    ] {
        assert_eq!(composed(rule, names), expected, "{rule} {names:?}");
    }
}

#[test]
fn https_ports_of_backends_need_verification() {
    let transport = object("ServersTransport", "own", "{serverName: a.internal}");
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: app, namespace: a}\nspec: {ports: [{name: \
        https-api, port: 8443}, {name: web, port: 80}]}\n---\n";
    for (port, expected) in [
        ("443", None),
        ("8443", None),
        ("https-api", None),
        ("80", Some(false)),
        ("443, scheme: http", Some(false)),
        ("443, serversTransport: own", Some(true)),
        ("8443, serversTransport: own", Some(true)),
        ("80, serversTransport: own", Some(false)),
        ("9443, serversTransport: own", None),
    ] {
        let routes =
            route("r", "Host(`a.io`)", WEB, "").replace("port: 80", &format!("port: {port}"));
        let conversion = converted(&[&*transport, service, &routes].concat());
        let has_tls = conversion
            .objects
            .iter()
            .any(|it| it["kind"] == "BackendTLSPolicy");
        let found = find(&conversion, "HTTPRoute", "r").map(|_| has_tls);
        assert_eq!(found, expected, "{port}: {}", as_table(&conversion));
    }
}

#[test]
fn entry_points_and_classes_are_never_guessed() {
    let auth = middleware("auth", "{basicAuth: {secret: users}}");
    let app = route("app", "Host(`a.io`)", WEB, "");
    let admin = |spec: &str| {
        route(
            "admin",
            "Host(`a.io`) && Path(`/admin`)",
            spec,
            "middlewares: [{name: auth}]",
        )
    };
    let both = &["admin", "app"][..];
    for (spec, expected) in [
        ("entryPoints: []", both),
        ("entryPoints: web", &[]),
        ("entryPoints: [1]", &[]),
        ("entryPoints: [internal]", &[]),
        ("entryPoints: [web], ingressClassName: traefik", both),
        ("entryPoints: [web], ingressClassName: internal", &[]),
    ] {
        assert_routes(&[&*auth, &app, &admin(spec)].concat(), expected);
    }
    let annotated = admin(WEB).replace(
        "namespace: a",
        "namespace: a, annotations: {kubernetes.io/ingress.class: internal}",
    );
    assert_routes(&[&*auth, &annotated].concat(), &[]);
    let class = "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: internal}\nspec: \
        {controller: traefik.io/ingress-controller}\n---\n";
    assert_routes(&[&*auth, class, &annotated].concat(), &["admin"]);
    let public = route(
        "public",
        "Host(`b.io`)",
        "entryPoints: [web], ingressClassName: traefik",
        "",
    );
    assert_routes(&[&*auth, class, &annotated, &public].concat(), &["public"]);
    let accepted = from(
        "traefik",
        &parse(&admin("entryPoints: [internal]")),
        &["entryPoints", "routes.middlewares.name"],
    );
    assert_eq!(routes(&accepted), ["admin"], "{}", as_table(&accepted));
}

#[test]
fn repeated_references_are_bounded() {
    let chain = |name: &str, below: &str| {
        let list = vec![format!("{{name: {below}}}"); 100].join(", ");
        middleware(name, &format!("{{chain: {{middlewares: [{list}]}}}}"))
    };
    let used = route("r", "Host(`a.io`)", WEB, "middlewares: [{name: m0}]");
    let mut several = String::new();
    for depth in 0..4 {
        several += &chain(&format!("m{depth}"), &format!("m{}", depth + 1));
    }
    several += &middleware("m4", "{addPrefix: {prefix: /a}}");
    for chains in [chain("m0", "m0"), several] {
        assert_routes(&(chains + &used), &[]);
    }
    let list = vec!["{kind: TraefikService, name: split}"; 100].join(", ");
    let split = object(
        "TraefikService",
        "split",
        &format!("{{weighted: {{services: [{list}]}}}}"),
    );
    let splitting = route("r", "Host(`a.io`)", WEB, "").replace(
        "{name: app, port: 80}",
        "{kind: TraefikService, name: split}",
    );
    assert_routes(&(split + &splitting), &[]);
}

#[test]
fn huge_numbers_are_refused() {
    for (spec, is_complete) in [
        (
            "{rateLimit: {average: 9223372036854775807, period: 1m}}",
            false,
        ),
        ("{rateLimit: {average: 9223372036854775807}}", false),
        ("{rateLimit: {average: -5}}", false),
        (
            "{rateLimit: {average: 10, burst: -9223372036854775808}}",
            true,
        ),
        ("{retry: {attempts: -9223372036854775808}}", true),
    ] {
        let text =
            middleware("m", spec) + &route("r", "Host(`a.io`)", WEB, "middlewares: [{name: m}]");
        assert_eq!(converted(&text).is_complete(), is_complete, "{spec}");
    }
}
