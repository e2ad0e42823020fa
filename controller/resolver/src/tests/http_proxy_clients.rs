//! `tls.clientValidation` in HTTPProxies.

use sesame_kit::certs::Authority;
use sesame_proto::schema::tls_termination::ClientMode;
use sesame_proto::schema::{ForwardClientCertificate, Listener};

use super::http_proxies::{NONE, errors, proxy, send, with};
use super::ingresses::{CLASS, ingress, path, rule};
use super::tls::{certificate, https, secret};
use super::{HTTP, gateway, indent, resolved};
use crate::Resolution;

fn entry(namespace: &str, name: &str, key: &str, text: &str) -> String {
    format!(
        "---\nkind: Secret\ntype: Opaque\nmetadata: {{name: {name}, namespace: {namespace}}}\nstringData:\n  \
         {key}: |\n{}\n",
        indent(text, 4)
    )
}

fn pair() -> String {
    let pem = certificate(&["h.test"]);
    secret("web", "s", &pem.certificate, &pem.key)
}

fn validating(clients: &str) -> String {
    let spec = format!(
        "virtualhost: {{fqdn: h.test, tls: {{secretName: s, clientValidation: {{{clients}}}}}}}\n\
         routes: [{{services: [{{name: a, port: 80}}]}}]"
    );
    proxy("r", &spec)
}

fn listener(resolution: &Resolution) -> Option<&Listener> {
    let ports = resolution.gateways[0].snapshot.ports.iter();
    let mut listeners = ports.flat_map(|port| &port.listeners);
    listeners.find(|it| it.hostname == "h.test")
}

#[test]
fn client_validation_is_served_as_written() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let list = ours.revocation_list(&[], true);
    let objects = [
        pair(),
        entry(
            "web",
            "ca",
            "ca.crt",
            &(ours.pem().to_owned() + theirs.pem()),
        ),
        entry("web", "crl", "crl.pem", &list),
    ];
    let ca = "Secret/web/ca/ca.crt";
    let crl = format!("{ca}+Secret/web/crl/crl.pem");
    let leaf = format!("{crl}/leaf");
    for (clients, mode, bundle) in [
        ("caSecret: ca", ClientMode::Required, ca),
        ("caSecret: web/ca", ClientMode::Required, ca),
        (
            "caSecret: ca, optionalClientCertificate: true",
            ClientMode::Optional,
            ca,
        ),
        (
            "caSecret: ca, skipClientCertValidation: true",
            ClientMode::RequiredUnverified,
            ca,
        ),
        (
            "skipClientCertValidation: true",
            ClientMode::OptionalUnverified,
            "",
        ),
        ("caSecret: ca, crlSecret: crl", ClientMode::Required, &*crl),
        (
            "caSecret: ca, crlSecret: crl, crlOnlyVerifyLeafCert: true",
            ClientMode::Required,
            &*leaf,
        ),
    ] {
        let resolution = with(&[objects.concat(), validating(clients)]);
        assert_eq!(errors(&resolution, "r"), NONE, "{clients}");
        assert_eq!(send(&resolution, 443, "/", &[]), "web/a/80", "{clients}");
        assert_eq!(send(&resolution, 80, "/", &[]), "301 https:0", "{clients}");
        let tls = listener(&resolution).and_then(|it| it.tls.clone());
        let tls = tls.expect("TLS termination");
        assert_eq!(tls.client_mode(), mode, "{clients}");
        assert_eq!(tls.client_trust_bundle, bundle, "{clients}");
        assert_eq!(tls.forward_client_certificate, None, "{clients}");
        let bundles = &resolution.gateways[0].snapshot.trust_bundles;
        assert_eq!(bundles.len(), usize::from(!bundle.is_empty()), "{clients}");
        for found in bundles {
            assert_eq!(found.pem.matches("BEGIN CERTIFICATE").count(), 2);
            assert_eq!(found.crl.is_empty(), !clients.contains("crl"), "{clients}");
            assert_eq!(found.crl_for_leaf_only, bundle == leaf, "{clients}");
        }
    }
    let forward = "caSecret: ca, forwardClientCertificate: {subject: true, uri: true}";
    let resolution = with(&[objects.concat(), validating(forward)]);
    let tls = listener(&resolution).and_then(|it| it.tls.as_ref());
    let expected = ForwardClientCertificate {
        subject: true,
        uri: true,
        ..ForwardClientCertificate::default()
    };
    assert_eq!(
        tls.and_then(|tls| tls.forward_client_certificate),
        Some(expected)
    );
}

#[test]
fn host_with_unusable_client_validation_is_closed() {
    let ours = Authority::new("ours");
    let objects = [
        pair(),
        entry("web", "ca", "ca.crt", ours.pem()),
        entry("web", "empty", "other", "text"),
        entry(
            "web",
            "broken",
            "ca.crt",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        ),
        entry("web", "crl", "crl.pem", "text"),
        entry("other", "ca", "ca.crt", ours.pem()),
        ingress(
            "i",
            &format!(
                "tls: [{{hosts: [h.test], secretName: s}}]\n{}",
                rule("h.test", &[path("/x", "Prefix", "b")])
            ),
        ),
    ];
    let wide = format!(
        "{HTTP}\n- {{name: wide, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{{name: s}}]}}}}"
    );
    for (clients, reason) in [
        ("", "ClientValidationInvalid"),
        ("optionalClientCertificate: true", "ClientValidationInvalid"),
        ("caSecret: gone", "ClientValidationInvalid"),
        ("caSecret: empty", "ClientValidationInvalid"),
        ("caSecret: broken", "ClientValidationInvalid"),
        ("caSecret: ca, crlSecret: crl", "ClientValidationInvalid"),
        ("caSecret: ca, crlSecret: gone", "ClientValidationInvalid"),
        (
            "skipClientCertValidation: true, crlSecret: crl",
            "ClientValidationInvalid",
        ),
        ("caSecret: other/ca", "DelegationNotPermitted"),
    ] {
        for listeners in [HTTP, &wide] {
            let all = [
                gateway(listeners),
                CLASS.to_owned(),
                objects.concat(),
                validating(clients),
            ];
            let resolution = resolved(&all.concat());
            let expected = [format!("TLSError/{reason}")];
            assert_eq!(errors(&resolution, "r"), expected, "{clients}");
            for path in ["/", "/x"] {
                assert_eq!(send(&resolution, 443, path, &[]), "404", "{clients} {path}");
            }
            assert_eq!(send(&resolution, 80, "/", &[]), "301 https:0", "{clients}");
            let tls = listener(&resolution).and_then(|it| it.tls.as_ref());
            assert_eq!(tls, None, "{clients}");
        }
    }
}

#[test]
fn client_authority_of_other_namespace_needs_delegation() {
    let ours = Authority::new("ours");
    let objects = [
        pair(),
        entry("other", "ca", "ca.crt", ours.pem()),
        validating("caSecret: other/ca"),
        "---\nkind: TLSCertificateDelegation\nmetadata: {name: d, namespace: other}\nspec: {delegations: [{secretName: \
         ca, targetNamespaces: [web]}]}\n"
            .to_owned(),
    ];
    assert_eq!(errors(&with(&objects), "r"), NONE);
}

#[test]
fn ingress_of_same_host_inherits_client_validation() {
    let ours = Authority::new("ours");
    let tls = "tls: [{hosts: [h.test], secretName: s}]\n";
    let rules = rule("h.test", &[path("/x", "Prefix", "b")]);
    for of_ingress in [rules.clone(), format!("{tls}{rules}")] {
        let resolution = with(&[
            pair(),
            entry("web", "ca", "ca.crt", ours.pem()),
            validating("caSecret: ca"),
            ingress("i", &of_ingress),
        ]);
        assert_eq!(send(&resolution, 443, "/x", &[]), "web/b/80");
        let tls = listener(&resolution).and_then(|it| it.tls.as_ref());
        let bundle = tls.map(|tls| tls.client_trust_bundle.as_str());
        assert_eq!(bundle, Some("Secret/web/ca/ca.crt"));
    }
}

#[test]
fn routes_stay_off_listeners_without_their_validation() {
    let ours = Authority::new("ours");
    let objects = [
        CLASS.to_owned(),
        pair(),
        entry("web", "ca", "ca.crt", ours.pem()),
        validating("caSecret: ca"),
    ];
    // The listener on the other port does not validate clients.
    let other = format!(
        "{HTTP}\n- {{name: other, port: 8443, protocol: HTTPS, tls: {{certificateRefs: [{{name: s}}]}}}}"
    );
    let resolution = resolved(&format!("{}{}", gateway(&other), objects.concat()));
    assert_eq!(send(&resolution, 443, "/", &[]), "web/a/80");
    assert_eq!(send(&resolution, 8443, "/", &[]), "404");
    // The Gateway's own listener has the same hostname.
    let own = https("own", "h.test", "{name: s}");
    let resolution = resolved(&format!("{}{}", gateway(&own), objects.concat()));
    assert_eq!(send(&resolution, 443, "/", &[]), "404");
    assert_eq!(
        errors(&resolution, "r")[0],
        "TLSError/ClientValidationInvalid"
    );
}

#[test]
fn validation_of_gateway_and_proxy_are_not_combined() {
    let ours = Authority::new("ours");
    let map = format!(
        "---\nkind: ConfigMap\nmetadata: {{name: ca, namespace: web}}\ndata:\n  ca.crt: |\n{}\n",
        indent(ours.pem(), 4)
    );
    let frontend = "  tls: {frontend: {default: {validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: \
                    ca}]}}}}\n";
    let all = [
        gateway(HTTP) + frontend,
        CLASS.to_owned(),
        map,
        pair(),
        validating("skipClientCertValidation: true"),
    ];
    let resolution = resolved(&all.concat());
    assert_eq!(send(&resolution, 443, "/", &[]), "404");
    assert_eq!(
        errors(&resolution, "r"),
        ["TLSError/ClientValidationInvalid"]
    );
}
