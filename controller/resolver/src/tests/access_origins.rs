//! AccessPolicies: protection against forged requests, and conditions on client certificates.

use sesame_proto::schema::{CertificateNames, Csrf};

use super::access_policies::{conditions, filters, policy};
use super::traffic_policies::{SCOPES, first, is_refused, served};

fn certificate(text: &str) -> String {
    format!(", authorization: {{rules: [{{action: Allow, certificates: [{text}]}}]}}")
}

#[test]
fn invalid_origins_and_certificates_refuse_their_targets() {
    let origin = |text: &str| format!(", csrf: {{additionalOrigins: [{text}]}}");
    let name = |text: &str| certificate(&format!("{{subjectAltNames: [{text}]}}"));
    let many = |count: usize, entry: &str| vec![entry; count].join(", ");
    let certificates = "spec.authorization.rules[0].certificates";
    let value = &format!("{certificates}[0].subjectAltNames[0].value");
    for (spec, why) in [
        (
            origin(&many(17, "a.test")),
            "spec.csrf.additionalOrigins has 17 entries; at most 16",
        ),
        (
            origin("a.test, 'https://b.test'"),
            "spec.csrf.additionalOrigins[1] \"https://b.test\" has a scheme",
        ),
        (
            origin("'null'"),
            "spec.csrf.additionalOrigins[0] \"null\" is not an origin",
        ),
        (origin("A.test"), "additionalOrigins[0] \"A.test\" is not"),
        (origin("'*.a.test'"), "additionalOrigins[0] \"*.a.test\" is"),
        (origin("'a.test:0'"), "additionalOrigins[0] \"a.test:0\" is"),
        (origin("a.test/"), "additionalOrigins[0] \"a.test/\" is not"),
        (origin("''"), "additionalOrigins[0] \"\" is not an origin"),
        (
            certificate(&many(17, "{subject: CN=a}")),
            &format!("{certificates} has 17 entries; at most 16"),
        ),
        (
            certificate("{}"),
            &format!("{certificates}[0]: expected subjectAltNames or subject"),
        ),
        (
            certificate("{subject: ann}"),
            &format!("{certificates}[0].subject \"ann\" is not a subject"),
        ),
        (
            certificate("{subject: CN=ä}"),
            &format!("{certificates}[0].subject \"CN=ä\" is not"),
        ),
        (
            name(&many(6, "{type: DNS, value: a.test}")),
            "subjectAltNames has 6 entries; at most 5",
        ),
        (
            name("{type: Email, value: a@b.test}"),
            "subjectAltNames[0].type \"Email\" is unknown; expected DNS or URI",
        ),
        (name("{type: DNS, value: ''}"), &format!("{value} is empty")),
        (
            name("{type: DNS, value: A.test}"),
            &format!("{value} is not valid: \"A.test\" has upper-case"),
        ),
        (
            name("{type: DNS, value: '*'}"),
            &format!("{value} contains \"*\"; expected patterns"),
        ),
        (
            name("{type: DNS, value: 'spiffe://a/*'}"),
            &format!("{value} is not valid: \"spiffe://a/*\""),
        ),
        (
            name("{type: URI, value: ''}"),
            &format!("{value} \"\" is not an absolute URI"),
        ),
        (
            name("{type: URI, value: '*.a.test'}"),
            &format!("{value} \"*.a.test\" is not an absolute URI"),
        ),
        (
            name("{type: URI, value: 'spiffe://*'}"),
            &format!("{value} contains \"spiffe://*\""),
        ),
        (
            name("{type: URI, value: 'spiffe://a/b*'}"),
            &format!("{value} contains \"spiffe://a/b*\""),
        ),
    ] {
        let resolution = served(&policy("p", SCOPES[1], &spec));
        assert!(is_refused(&resolution), "{spec}");
        let message = &conditions(&resolution, "p")[0].message;
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn origins_of_all_policies_are_kept_apart() {
    let all = policy(
        "all",
        SCOPES[3],
        ", csrf: {additionalOrigins: [a.test, '[::1]:80']}",
    );
    let own = policy("own", SCOPES[1], ", csrf: {}");
    let csrf = |name: &str, origins: &[&str]| Csrf {
        name: format!("AccessPolicy/web/{name}"),
        additional_origins: origins.iter().map(ToString::to_string).collect(),
    };
    let all_origins = csrf("all", &["a.test", "[::1]:80"]);
    let found = filters(&served(&(own + &all))).csrf;
    assert_eq!(found, [all_origins.clone(), csrf("own", &[])]);
    // An invalid policy on the route does not affect the Gateway's policy.
    let broken = policy("own", SCOPES[1], ", csrf: {additionalOrigins: ['null']}");
    let resolution = served(&(all + &broken));
    assert!(is_refused(&resolution));
    let filters = resolution.gateways[0].snapshot.filters.as_deref().unwrap();
    assert_eq!(filters.csrf, [all_origins]);
}

#[test]
fn gateway_policy_exempts_a_route_from_csrf_only() {
    let spec = ", csrf: {}, ipFilter: {deny: [10.0.0.0/8]}, \
        exemptions: [{kind: HTTPRoute, name: r, parts: [csrf]}]";
    let resolution = served(&policy("all", SCOPES[3], spec));
    let filters = first(&resolution).filters.as_deref().unwrap();
    assert!(filters.csrf.is_empty() && filters.address_filters.len() == 1);
    assert_eq!(filters.exempt_from, ["AccessPolicy/web/all/csrf"]);
}

#[test]
fn certificates_have_names_patterns_and_subject() {
    let spec = certificate(
        "{subjectAltNames: [{type: URI, value: 'spiffe://a/b'}, {type: URI, value: \
         'spiffe://a/ns/*'}, {type: DNS, value: a.test}, {type: DNS, value: '*.b.test'}]}, \
         {subject: 'CN=ann,O=Example'}",
    );
    let resolution = served(&policy("p", SCOPES[1], &spec));
    assert!(!is_refused(&resolution));
    let authorizations = filters(&resolution).authorizations;
    let expected = [
        CertificateNames {
            dns_names: vec!["a.test".to_owned()],
            uris: vec!["spiffe://a/b".to_owned()],
            dns_suffixes: vec![".b.test".to_owned()],
            uri_prefixes: vec!["spiffe://a/ns/".to_owned()],
            subject: String::new(),
        },
        CertificateNames {
            subject: "CN=ann,O=Example".to_owned(),
            ..CertificateNames::default()
        },
    ];
    assert_eq!(authorizations[0].rules[0].certificates, expected);
}
