//! TLS in HTTPProxies: nothing is served without the configured protection.

use super::http_proxies::{NONE, ask, errors, proxy, send, with};
use super::ingresses::CLASS;
use super::tls::{certificate, https, secret};
use super::{HTTP, gateway, resolved, world};
use crate::decode::{self, DecodeLimits};
use crate::resolve::{Options, resolve};

#[test]
fn tls_host_redirects_plain_requests_unless_permitted() {
    let pem = certificate(&["h.test"]);
    let pair = secret("web", "s", &pem.certificate, &pem.key);
    let spec = |secret: &str| {
        format!(
            "virtualhost: {{fqdn: h.test, tls: {{secretName: {secret}, minimumProtocolVersion: \"1.3\"}}}}\n\
             routes:\n- {{services: [{{name: a, port: 80}}]}}\n- {{conditions: [{{prefix: /open}}], permitInsecure: \
             true, services: [{{name: b, port: 80}}]}}"
        )
    };
    let resolution = with(&[pair.clone(), proxy("r", &spec("s"))]);
    assert_eq!(send(&resolution, 443, "/", &[]), "web/a/80");
    assert_eq!(send(&resolution, 443, "/open", &[]), "web/b/80");
    assert_eq!(send(&resolution, 80, "/", &[]), "301 https:0");
    assert_eq!(send(&resolution, 80, "/open", &[]), "web/b/80");
    assert_eq!(errors(&resolution, "r"), NONE);

    let missing = with(&[proxy("r", &spec("gone"))]);
    assert_eq!(send(&missing, 443, "/", &[]), "404");
    assert_eq!(send(&missing, 80, "/", &[]), "301 https:0");
    assert_eq!(errors(&missing, "r"), ["TLSError/SecretNotValid"]);

    let elsewhere = pair.replace("namespace: web", "namespace: certs");
    let undelegated = with(&[elsewhere.clone(), proxy("r", &spec("certs/s"))]);
    assert_eq!(
        errors(&undelegated, "r"),
        ["TLSError/DelegationNotPermitted"]
    );
    for (targets, permitted) in [
        ("web", true),
        ("'*'", true),
        ("'*', apps", false),
        ("apps", false),
    ] {
        let delegation = format!(
            "---\nkind: TLSCertificateDelegation\nmetadata: {{name: d, namespace: certs}}\nspec: \
             {{delegations: [{{secretName: s, targetNamespaces: [{targets}]}}]}}\n"
        );
        let delegated = with(&[elsewhere.clone(), delegation, proxy("r", &spec("certs/s"))]);
        assert_eq!(errors(&delegated, "r").is_empty(), permitted, "{targets}");
    }
}

#[test]
fn client_validation_is_never_dropped() {
    let pem = certificate(&["h.test", "*.test"]);
    let pair = secret("web", "s", &pem.certificate, &pem.key);
    let spec = "
virtualhost: {fqdn: h.test, tls: {secretName: s, clientValidation: {caSecret: ca}}}
routes: [{services: [{name: a, port: 80}]}]
";
    let listeners = format!(
        "{HTTP}\n- {{name: wide, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{{name: s}}]}}}}"
    );
    let all = format!("{}{CLASS}{pair}{}", gateway(&listeners), proxy("r", spec));
    let resolution = resolved(&all);
    // The less specific listener must not serve the host without client validation.
    assert_ne!(send(&resolution, 443, "/", &[]), "web/a/80");
    assert_eq!(
        errors(&resolution, "r"),
        ["TLSError/ClientValidationInvalid"]
    );

    // The Gateway's own listener must not serve the host without client validation either.
    let listeners = https("own", "h.test", "{name: s}");
    let all = format!("{}{CLASS}{pair}{}", gateway(&listeners), proxy("r", spec));
    assert_ne!(send(&resolved(&all), 443, "/", &[]), "web/a/80");
}

#[test]
fn unsupported_protecting_fields_withhold_routes() {
    let service = "services: [{name: a, port: 80}]";
    for (host, of_route, expected) in [
        ("authorization: {extensionRef: {name: x}}", "", "500"),
        (
            "authorization: {extensionRef: {name: x}}",
            "authPolicy: {disabled: true}, ",
            "web/a/80",
        ),
        ("jwtProviders: [{name: j, default: true}]", "", "500"),
        ("jwtProviders: [{name: j}]", "", "web/a/80"),
        (
            "jwtProviders: [{name: j}]",
            "jwtVerificationPolicy: {require: j}, ",
            "500",
        ),
        (
            "jwtProviders: [{name: j, default: true}]",
            "jwtVerificationPolicy: {disabled: true}, ",
            "web/a/80",
        ),
        (
            "ipAllowPolicy: [{source: Peer, cidr: 192.0.2.0/24}]",
            "",
            "web/a/80",
        ),
        (
            "fqdn: h.test",
            "ipDenyPolicy: [{source: Peer, cidr: 192.0.2.0/24}], ",
            "web/a/80",
        ),
        (
            "rateLimitPolicy: {local: {requests: 1, unit: second}}",
            "",
            "web/a/80",
        ),
        (
            "rateLimitPolicy: {global: {descriptors: [{entries: [{}]}]}}",
            "",
            "500",
        ),
        (
            "corsPolicy: {allowOrigin: ['*'], allowMethods: [GET]}",
            "",
            "web/a/80",
        ),
        (
            "fqdn: h.test",
            "cookieRewritePolicies: [{name: c}], ",
            "web/a/80",
        ),
    ] {
        let host = host.replace("fqdn: h.test", "");
        let comma = if host.is_empty() { "" } else { ", " };
        let spec = format!(
            "virtualhost: {{fqdn: h.test{comma}{host}}}\nroutes: [{{{of_route}{service}}}]"
        );
        let resolution = with(&[proxy("r", &spec)]);
        assert_eq!(ask(&resolution, "/"), expected, "{host} {of_route}");
        // Without TLS, these fields are errors even if no route needs them.
        let needs_tls = host.contains("jwtProviders") || host.contains("authorization");
        let is_valid = expected != "500" && !needs_tls;
        assert_eq!(
            errors(&resolution, "r").is_empty(),
            is_valid,
            "{host} {of_route}"
        );
    }
}

#[test]
fn unknown_protecting_field_withholds_its_route() {
    let unknown = proxy(
        "r",
        "virtualhost: {fqdn: h.test}\nroutes:\n- {services: [{name: a, port: 80}]}\n- {conditions: [{prefix: /x}], \
         newAuthPolicy: {}, services: [{name: a, port: 80}]}",
    );
    let text = unknown.replace("---\n", "apiVersion: projectcontour.io/v1\n");
    let decoded = decode::decode(&text, &DecodeLimits::default()).remove(0);
    let mut world = world(&format!("{}{CLASS}", gateway(HTTP)));
    world.insert(decoded.expect("an HTTPProxy").object);
    let resolution = resolve(&world, &Options::default());
    assert_eq!(ask(&resolution, "/"), "web/a/80");
    assert_eq!(ask(&resolution, "/x"), "500");
    assert_eq!(errors(&resolution, "r"), ["SpecError/UnknownField"]);
}
