//! External authorization in HTTPProxies.

use std::collections::BTreeSet;

use sesame_proto::schema::external_auth::Protocol;
use sesame_proto::schema::{Backend, ExternalAuth, ExternalAuthHttp};

use super::http_proxies::{NONE, errors, proxy, send, warnings, with};
use super::router::{GET, Request, find};
use super::tls::{certificate, secret};
use crate::Resolution;
use sesame_explain::access_of_rules;

const PLAIN: &str = "services: [{name: b, port: 80}], protocol: h2c";
const BY_X: &str = "extensionRef: {name: x}";
const TLS: &str = "tls: {secretName: s}, ";

fn extension(namespace: &str, spec: &str) -> String {
    format!(
        "---\nkind: ExtensionService\nmetadata: {{name: x, namespace: {namespace}}}\nspec: {{{spec}}}\n"
    )
}

fn grant(from: &str, to: &str) -> String {
    format!(
        "---\nkind: ReferenceGrant\nmetadata: {{name: g, namespace: auth}}\nspec: {{from: [{{group: \
         projectcontour.io, kind: {from}, namespace: web}}], to: [{{group: projectcontour.io, kind: {to}}}]}}\n"
    )
}

fn host(tls: &str, authorization: &str, routes: &str) -> String {
    let spec =
        format!("virtualhost: {{fqdn: h.test, {tls}authorization: {{{authorization}}}}}\n{routes}");
    proxy("r", &spec)
}

fn resolved(objects: &[String]) -> Resolution {
    let pem = certificate(&["h.test"]);
    let pair = secret("web", "s", &pem.certificate, &pem.key);
    with(&[objects.concat(), pair])
}

fn check(resolution: &Resolution, port: u32, path: &str) -> Option<ExternalAuth> {
    let request = Request {
        port,
        sni: "h.test",
        host: "h.test",
        path,
        ..GET
    };
    let route = find(&resolution.gateways[0].snapshot, &request).expect("a route");
    assert!(route.external_auth.len() < 2);
    route.external_auth.first().cloned()
}

fn backend<'r>(resolution: &'r Resolution, auth: &ExternalAuth) -> &'r Backend {
    let mut backends = resolution.gateways[0].snapshot.backends.iter();
    backends
        .find(|backend| backend.name == auth.backend)
        .expect("a Backend")
}

fn context(auth: &ExternalAuth) -> String {
    let values = auth.context.iter();
    let values: Vec<String> = values
        .map(|it| format!("{}={}", it.name, it.value))
        .collect();
    values.join(" ")
}

const ROUTES: &str = "
routes:
- {services: [{name: a, port: 80}]}
- {conditions: [{prefix: /open}], services: [{name: a, port: 80}], authPolicy: {disabled: true}}
- {conditions: [{prefix: /on}], services: [{name: a, port: 80}], authPolicy: {}}
- {conditions: [{prefix: /more}], services: [{name: a, port: 80}], authPolicy: {context: {b: '3', c: '4'}}}
- {conditions: [{prefix: /away}], requestRedirectPolicy: {hostname: o.test}, authPolicy: {disabled: true}}
- {conditions: [{prefix: /insecure}], services: [{name: a, port: 80}], permitInsecure: true}
includes: [{name: child, conditions: [{prefix: /child}]}]
";

const CHILD: &str = "
routes:
- {services: [{name: a, port: 80}]}
- {conditions: [{prefix: /open}], services: [{name: a, port: 80}], authPolicy: {disabled: true}}
";

#[test]
fn routes_and_includes_inherit_and_override() {
    for (disabled, open) in [
        (false, &["/open", "/child/open"][..]),
        (true, &["/", "/open", "/child", "/child/open", "/insecure"]),
    ] {
        let policy =
            format!("{BY_X}, authPolicy: {{disabled: {disabled}, context: {{a: '1', b: '2'}}}}");
        let resolution = resolved(&[
            extension("web", PLAIN),
            host(TLS, &policy, ROUTES),
            proxy("child", CHILD),
        ]);
        assert_eq!(errors(&resolution, "r"), NONE);
        assert_eq!(errors(&resolution, "child"), NONE);
        assert_eq!(warnings(&resolution, "r"), ["SpecError/IgnoredField"]);
        let rules = access_of_rules(&resolution.gateways[0].snapshot);
        let exempt = rules.iter().filter(|it| {
            let from = it.exempt_from.iter();
            from.eq(["ExternalAuth HTTPProxy/web/r"].iter())
        });
        let exempt: BTreeSet<&str> = exempt.map(|it| it.rule.as_str()).collect();
        assert_eq!(exempt.len(), open.len(), "{rules:?}");
        for path in [
            "/",
            "/open",
            "/on",
            "/more",
            "/away",
            "/insecure",
            "/child",
            "/child/open",
        ] {
            let auth = check(&resolution, 443, path);
            assert_eq!(auth.is_none(), open.contains(&path), "{disabled} {path}");
            let Some(auth) = auth else {
                continue;
            };
            assert_eq!(auth.policy, "HTTPProxy/web/r");
            let expected = if path == "/more" {
                "a=1 b=3 c=4"
            } else {
                "a=1 b=2"
            };
            assert_eq!(context(&auth), expected, "{path}");
            assert!(
                backend(&resolution, &auth)
                    .name
                    .starts_with("Service/web/b/80/")
            );
        }
        // Only the redirect to HTTPS needs no check.
        assert_eq!(send(&resolution, 80, "/", &[]), "301 https:0");
        assert_eq!(check(&resolution, 80, "/"), None);
        let insecure = check(&resolution, 80, "/insecure");
        assert_eq!(insecure, check(&resolution, 443, "/insecure"));
        assert_eq!(send(&resolution, 80, "/insecure", &[]), "web/a/80");
    }
}

#[test]
fn settings_are_read_as_written() {
    let read = |service: &str, settings: &str| {
        let routes = "routes: [{services: [{name: a, port: 80}]}]";
        let host = host(TLS, &format!("{BY_X}{settings}"), routes);
        let resolution = resolved(&[extension("web", service), host]);
        assert_eq!(errors(&resolution, "r"), NONE, "{service} {settings}");
        let auth = check(&resolution, 443, "/").expect("an authorization");
        let backend = backend(&resolution, &auth).clone();
        (auth, backend)
    };
    let (auth, _) = read(PLAIN, "");
    let Some(Protocol::Grpc(grpc)) = &auth.protocol else {
        panic!("{auth:?}");
    };
    assert!(grpc.peer_certificate && grpc.request_headers.is_empty());
    assert!(!auth.fail_open && auth.max_body_bytes == 0 && auth.timeout_ms == 0);

    let timeouts = format!("{PLAIN}, timeoutPolicy: {{response: 2s, idleConnection: 3s}}");
    assert_eq!(read(&timeouts, "").0.timeout_ms, 2_000);
    let (auth, backend) = read(
        &timeouts,
        ", responseTimeout: 1s, failOpen: true, serviceType: grpc",
    );
    assert!(auth.fail_open && auth.timeout_ms == 1_000);
    assert_eq!(backend.idle_timeout_ms, Some(3_000));
    let unlimited = read(PLAIN, ", responseTimeout: infinity").0.timeout_ms;
    assert_eq!(unlimited, 3_600_000);

    let is_text = |auth: &ExternalAuth| match &auth.protocol {
        Some(Protocol::Grpc(grpc)) => grpc.text_body,
        other => panic!("{other:?}"),
    };
    let (auth, _) = read(PLAIN, ", withRequestBody: {}");
    assert!(auth.max_body_bytes == 1024 && is_text(&auth) && !auth.partial_body);
    let body =
        ", withRequestBody: {maxRequestBytes: 9, allowPartialMessage: true, packAsBytes: true}";
    let (auth, _) = read(PLAIN, body);
    assert!(auth.max_body_bytes == 9 && !is_text(&auth) && auth.partial_body);

    let plain = "services: [{name: b, port: 80}], protocol: http/1.1, circuitBreakerPolicy: {maxRequests: 7}, \
                 loadBalancerPolicy: {strategy: Random}";
    let http = ", serviceType: http, httpSettings: {pathPrefix: /check/, allowedAuthorizationHeaders: [{exact: \
                X-Token, ignoreCase: true}], allowedUpstreamHeaders: [{exact: x-user}]}";
    let (auth, backend) = read(plain, http);
    let expected = ExternalAuthHttp {
        path_prefix: "/check".to_owned(),
        request_headers: vec!["x-token".to_owned()],
        response_headers: vec!["x-user".to_owned()],
        ..ExternalAuthHttp::default()
    };
    assert!(auth.no_response_headers);
    assert_eq!(auth.protocol, Some(Protocol::Http(expected)));
    assert_eq!(backend.breaker.map(|it| it.max_requests), Some(7));
    assert!(backend.load_balancer.is_some());
}

/// Asserts that the first route, which needs authorization, gets 500 for the given reason.
fn is_withheld(tls: &str, service: &str, authorization: &str, reason: &str) {
    let routes = "
routes:
- {services: [{name: a, port: 80}]}
- {conditions: [{prefix: /open}], services: [{name: a, port: 80}], authPolicy: {disabled: true}}
";
    let objects = [extension("web", service), host(tls, authorization, routes)];
    let case = format!("{service}; {authorization}");
    let resolution = resolved(&objects);
    let port = if tls.is_empty() { 80 } else { 443 };
    assert_eq!(send(&resolution, port, "/", &[]), "500", "{case}");
    assert_eq!(send(&resolution, port, "/open", &[]), "web/a/80", "{case}");
    let error = format!("AuthError/{reason}");
    let expected = [error.as_str(), error.as_str()];
    assert_eq!(errors(&resolution, "r"), expected, "{case}");
}

#[test]
fn unusable_extension_service_withholds_routes() {
    let not_found = "ExtensionServiceNotFound";
    is_withheld("", PLAIN, BY_X, "AuthNotPermitted");
    let bad_version = format!("{BY_X}, failOpen: true").replace("x}", "x, apiVersion: v1}");
    for (authorization, reason) in [
        ("extensionRef: {name: gone}, failOpen: true", not_found),
        ("failOpen: true", not_found),
        (&*bad_version, "AuthBadResourceVersion"),
    ] {
        is_withheld(TLS, PLAIN, authorization, reason);
    }
    let validated = format!("{PLAIN}, validation: {{caSecret: ca, subjectName: a.test}}");
    let limited = format!("{PLAIN}, circuitBreakerPolicy: {{maxRetries: -1}}");
    let b = "services: [{name: b, port: 80}]";
    let of_b = |more: &str| format!("{b}, {more}");
    for (service, reason) in [
        ("protocol: h2c", not_found),
        (
            "services: [{name: b, port: 80}, {name: c, port: 80}]",
            not_found,
        ),
        // The default protocol needs verified TLS.
        (b, not_found),
        (&*validated, not_found),
        (&*limited, not_found),
        (&*of_b("protocol: http/1.1"), not_found),
        (&*of_b("protocol: tls"), not_found),
        (&*of_b("protocolVersion: v2"), not_found),
        (
            "services: [{name: none, port: 80}], protocol: h2c",
            not_found,
        ),
    ] {
        is_withheld(TLS, service, BY_X, reason);
    }
}

#[test]
fn invalid_settings_withhold_routes() {
    for (settings, reason) in [
        ("responseTimeout: soon", "AuthResponseTimeoutInvalid"),
        ("responseTimeout: 2h", "AuthResponseTimeoutInvalid"),
        (
            "serviceType: http, authPolicy: {context: {a: b}}",
            "AuthContextForHTTP",
        ),
        ("authPolicy: {context: {'': b}}", "AuthContextNotValid"),
        (
            "serviceType: http, httpSettings: {allowedUpstreamHeaders: [{prefix: x-}]}",
            "AuthBadAllowedHeader",
        ),
        (
            "serviceType: http, httpSettings: {allowedUpstreamHeaders: [{exact: host}]}",
            "HTTPSettingsNotValid",
        ),
        (
            "serviceType: http, httpSettings: {pathPrefix: /../x}",
            "HTTPSettingsNotValid",
        ),
        ("httpSettings: {}", "HTTPSettingsNotValid"),
        (
            "withRequestBody: {maxRequestBytes: 0}",
            "RequestBodyNotValid",
        ),
        ("serviceType: tcp", "ServiceTypeNotValid"),
    ] {
        is_withheld(TLS, PLAIN, &format!("{BY_X}, {settings}"), reason);
    }
}

#[test]
fn foreign_extension_service_needs_grant() {
    let by_foreign = "extensionRef: {name: x, namespace: auth}";
    let routes = "routes: [{services: [{name: a, port: 80}]}]";
    let service =
        "---\nkind: Service\nmetadata: {name: b, namespace: auth}\nspec: {ports: [{port: 80}]}\n";
    for (grant, permitted) in [
        (String::new(), false),
        (grant("Ingress", "ExtensionService"), false),
        (grant("HTTPProxy", "HTTPProxy"), false),
        (grant("HTTPProxy", "ExtensionService"), true),
    ] {
        let resolution = resolved(&[
            extension("auth", PLAIN),
            service.to_owned(),
            grant.clone(),
            host(TLS, by_foreign, routes),
        ]);
        if permitted {
            assert_eq!(errors(&resolution, "r"), NONE);
            let auth = check(&resolution, 443, "/").expect("an authorization");
            assert!(auth.backend.starts_with("Service/auth/b/80/"));
        } else {
            let error = "AuthError/ExtensionServiceNotPermitted";
            assert_eq!(errors(&resolution, "r"), [error, error], "{grant}");
            assert_eq!(send(&resolution, 443, "/", &[]), "500", "{grant}");
        }
    }
}

#[test]
fn invalid_context_withholds_only_its_route() {
    let route = |i: usize| {
        format!(
            "- {{conditions: [{{prefix: /{i}}}], services: [{{name: a, port: 80}}], authPolicy: {{context: {{n: \
             '{i}'}}}}}}\n"
        )
    };
    let routes: String = (0..5).map(route).collect();
    let routes = format!("routes:\n{routes}- {{services: [{{name: a, port: 80}}]}}");
    let resolution = resolved(&[extension("web", PLAIN), host(TLS, BY_X, &routes)]);
    // The last route's check has no context, but also counts towards the limit.
    let error = "AuthError/NotSupported";
    assert_eq!(errors(&resolution, "r"), [error, error]);
    for (path, answer) in [
        ("/2", "web/a/80"),
        ("/3", "500"),
        ("/4", "500"),
        ("/", "web/a/80"),
    ] {
        assert_eq!(send(&resolution, 443, path, &[]), answer, "{path}");
    }

    let http = format!("{BY_X}, serviceType: http");
    let resolution = resolved(&[extension("web", PLAIN), host(TLS, &http, &routes)]);
    assert_eq!(send(&resolution, 443, "/1", &[]), "500");
    assert_eq!(send(&resolution, 443, "/", &[]), "web/a/80");
    assert_eq!(
        errors(&resolution, "r"),
        ["AuthError/AuthContextForHTTP"; 5]
    );
}

#[test]
fn validation_verifies_the_service() {
    let ca = sesame_kit::certs::Authority::new("test");
    let authorities = format!(
        "---\nkind: Secret\ntype: Opaque\nmetadata: {{name: ca, namespace: web}}\nstringData:\n  ca.crt: |\n{}\n",
        super::indent(ca.pem(), 4)
    );
    let verified =
        "services: [{name: b, port: 80}], validation: {caSecret: ca, subjectName: auth.test}";
    let routes = "routes: [{services: [{name: a, port: 80}]}]";
    for (objects, served) in [(authorities.as_str(), true), ("", false)] {
        let resolution = resolved(&[
            objects.to_owned(),
            extension("web", verified),
            host(TLS, BY_X, routes),
        ]);
        assert_eq!(errors(&resolution, "r").is_empty(), served);
        if served {
            let auth = check(&resolution, 443, "/").expect("an authorization");
            let tls = backend(&resolution, &auth).tls.clone().expect("TLS");
            assert_eq!(tls.sni, "auth.test");
            assert_eq!(tls.trust_bundle, "Secret/web/ca/ca.crt");
        } else {
            assert_eq!(send(&resolution, 443, "/", &[]), "500");
        }
    }
}
