//! TLS in HTTPProxies: nothing is served without the configured protection.

use rcgen::{CertificateParams, KeyPair, SanType};
use sesame_proto::schema::tls_termination::Version;

use super::http_proxies::{NONE, ask, errors, proxy, send, warnings, with};
use super::ingresses::{CLASS, ingress, path, rule};
use super::tls::{certificate, https, secret};
use super::{HTTP, gateway, resolved, world};
use crate::{Options, resolve};
use sesame_kinds::decode::{self, DecodeLimits};

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
    let delegation = |secret: &str, targets: &str| {
        format!(
            "---\nkind: TLSCertificateDelegation\nmetadata: {{name: d, namespace: certs}}\nspec: \
             {{delegations: [{{secretName: {secret}, targetNamespaces: [{targets}]}}]}}\n"
        )
    };
    let grant = |kind: &str| {
        format!(
            "---\nkind: ReferenceGrant\nmetadata: {{name: g, namespace: certs}}\nspec: {{from: [{{group: \
             projectcontour.io, kind: {kind}, namespace: web}}], to: [{{group: '', kind: Secret, name: s}}]}}\n"
        )
    };
    for (permission, permitted) in [
        (String::new(), false),
        (delegation("s", "web"), true),
        (delegation("s", "'*'"), true),
        (delegation("s", "'*', apps"), false),
        (delegation("s", "apps"), false),
        (delegation("other", "web"), false),
        (grant("HTTPProxy"), true),
        (grant("ExtensionService"), false),
    ] {
        let resolution = with(&[
            elsewhere.clone(),
            permission.clone(),
            proxy("r", &spec("certs/s")),
        ]);
        let found = errors(&resolution, "r");
        let refused = found == ["TLSError/DelegationNotPermitted"];
        assert_eq!(
            (found.is_empty(), refused),
            (permitted, !permitted),
            "{permission}"
        );
        let answer = if permitted { "web/a/80" } else { "404" };
        assert_eq!(send(&resolution, 443, "/", &[]), answer, "{permission}");
        assert_eq!(
            send(&resolution, 80, "/", &[]),
            "301 https:0",
            "{permission}"
        );
    }
}

#[test]
fn opaque_secret_is_valid_for_proxies_and_ingresses_only() {
    let pem = certificate(&["h.test", "i.test"]);
    let pair = secret("web", "s", &pem.certificate, &pem.key);
    let rules = rule("i.test", &[path("/", "Prefix", "a")]);
    let ingress = ingress(
        "i",
        &format!("tls: [{{hosts: [i.test], secretName: s}}]\n{rules}"),
    );
    let proxy = proxy(
        "r",
        "virtualhost: {fqdn: h.test, tls: {secretName: s}}\nroutes: [{services: [{name: a, port: 80}]}]",
    );
    let own = https("own", "own.test", "{name: s}");
    for (type_, of_layers, of_gateway) in [
        ("type: kubernetes.io/tls\n", true, true),
        ("type: Opaque\n", true, false),
        ("", true, false),
        ("type: example.com/tls\n", false, false),
    ] {
        let pair = pair.replace("type: kubernetes.io/tls\n", type_);
        let all = [
            gateway(&own),
            CLASS.to_owned(),
            pair,
            ingress.clone(),
            proxy.clone(),
        ];
        let resolution = resolved(&all.concat());
        let mut hosts: Vec<&str> = Vec::new();
        for port in &resolution.gateways[0].snapshot.ports {
            let listeners = port.listeners.iter().filter(|it| it.tls.is_some());
            hosts.extend(listeners.map(|it| it.hostname.as_str()));
        }
        for (host, expected) in [
            ("h.test", of_layers),
            ("i.test", of_layers),
            ("own.test", of_gateway),
        ] {
            assert_eq!(hosts.contains(&host), expected, "{type_} {host}");
        }
        assert_eq!(errors(&resolution, "r").is_empty(), of_layers, "{type_}");
    }
}

#[test]
fn invalid_tls_settings_close_the_host() {
    let pem = certificate(&["h.test"]);
    let pair = secret("web", "s", &pem.certificate, &pem.key);
    let of = |tls: &str| {
        let spec = format!(
            "virtualhost: {{fqdn: h.test, tls: {{{tls}}}}}\nroutes: [{{services: [{{name: a, port: 80}}]}}]"
        );
        with(&[pair.clone(), proxy("r", &spec)])
    };
    for (tls, min, max, warned) in [
        (
            "minimumProtocolVersion: '1.3'",
            Version::Tls13,
            Version::Unset,
            false,
        ),
        (
            "maximumProtocolVersion: '1.2'",
            Version::Unset,
            Version::Tls12,
            false,
        ),
        // As in Contour, an unknown version means the default.
        (
            "minimumProtocolVersion: TLSv1.3",
            Version::Unset,
            Version::Unset,
            true,
        ),
        (
            "maximumProtocolVersion: '1.1'",
            Version::Unset,
            Version::Unset,
            true,
        ),
    ] {
        let resolution = of(&format!("secretName: s, {tls}"));
        let ports = resolution.gateways[0].snapshot.ports.iter();
        let mut found = ports
            .flat_map(|port| &port.listeners)
            .filter_map(|it| it.tls.as_ref());
        let found = found.next().expect("a listener with TLS");
        assert_eq!(
            (found.min_version(), found.max_version()),
            (min, max),
            "{tls}"
        );
        assert_eq!(errors(&resolution, "r"), NONE, "{tls}");
        let expected = warned.then_some("TLSError/IgnoredField");
        assert_eq!(
            warnings(&resolution, "r").first().map(String::as_str),
            expected,
            "{tls}"
        );
    }
    for tls in [
        "",
        "secretName: s, passthrough: true",
        "secretName: s, minimumProtocolVersion: '1.3', maximumProtocolVersion: '1.2'",
    ] {
        let resolution = of(tls);
        assert_eq!(
            errors(&resolution, "r"),
            ["TLSError/TLSConfigNotValid"],
            "{tls}"
        );
        assert_eq!(send(&resolution, 443, "/", &[]), "404", "{tls}");
        assert_eq!(send(&resolution, 80, "/", &[]), "301 https:0", "{tls}");
    }
}

#[test]
fn certificate_without_hostname_is_served_with_warning() {
    let pair = |names: Vec<SanType>| {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        let key = KeyPair::generate().expect("a key");
        let made = params.self_signed(&key).expect("a certificate");
        secret("web", "s", &made.pem(), &key.serialize_pem())
    };
    let uri = SanType::URI("spiffe://h.test/a".try_into().expect("a URI"));
    let name = SanType::DnsName("h.test".try_into().expect("a name"));
    for (names, warned) in [(vec![name], false), (vec![uri], true), (Vec::new(), true)] {
        let spec = "virtualhost: {fqdn: h.test, tls: {secretName: s}}\nroutes: [{services: [{name: a, port: 80}]}]";
        let resolution = with(&[pair(names), proxy("r", spec)]);
        assert_eq!(send(&resolution, 443, "/", &[]), "web/a/80");
        assert_eq!(errors(&resolution, "r"), NONE);
        assert_eq!(!warnings(&resolution, "r").is_empty(), warned);
    }
}

#[test]
fn namespace_that_listener_refuses_makes_host_invalid() {
    let pem = certificate(&["h.test"]);
    let pair = secret("web", "s", &pem.certificate, &pem.key);
    let spec = "virtualhost: {fqdn: h.test, tls: {secretName: s}}\n\
                routes: [{services: [{name: a, port: 80}]}]";
    // The other listener covers the host, but does not receive its connections.
    let listeners = |namespaces: &str| {
        let [own, wide] = ["h.test", "*.test"].map(|host| https("https", host, "{name: s}"));
        let allowed = format!("allowedRoutes: {{namespaces: {namespaces}}}, tls:");
        let wide = wide.replace("name: https", "name: wide");
        format!("{HTTP}\n{}{wide}", own.replace("tls:", &allowed))
    };
    let refusing = listeners("{from: Selector, selector: {matchLabels: {team: ops}}}");
    let (overridden, refused) = ("TLSError/Overridden", "RouteError/NotAllowedByListener");
    for (listeners, answer, error, warning) in [
        (refusing, "404", &[refused][..], &[][..]),
        (listeners("{from: Same}"), "web/a/80", &[], &[overridden]),
    ] {
        let all = format!("{}{CLASS}{pair}{}", gateway(&listeners), proxy("r", spec));
        let resolution = resolved(&all);
        assert_eq!(send(&resolution, 443, "/", &[]), answer);
        assert_eq!(errors(&resolution, "r"), error);
        assert_eq!(warnings(&resolution, "r"), warning);
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
            "cookieRewritePolicies: [{name: c, secure: true}], ",
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

#[test]
fn key_after_ec_parameters_is_used() {
    let pem = certificate(&["h.test"]);
    let parameters =
        "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    let key = format!("{parameters}{}", pem.key);
    let pair = secret("web", "s", &pem.certificate, &key);
    let proxy = proxy(
        "r",
        "virtualhost: {fqdn: h.test, tls: {secretName: s}}\nroutes: [{services: [{name: a, port: 80}]}]",
    );
    let resolution = resolved(&format!("{}{CLASS}{pair}{proxy}", gateway(HTTP)));
    assert_eq!(errors(&resolution, "r"), NONE);
    assert_eq!(send(&resolution, 443, "/", &[]), "web/a/80");
}
