//! Tests the rendering of CSRF protection and of conditions on client certificates.

use serde_json::{Value, json};
use sesame_proto::schema::{
    Authorization, AuthorizationRule, CertificateNames, Csrf, RequestFilters,
};

use super::shared_filters::{filtered, printed};

pub(super) fn every_csrf() -> Vec<Csrf> {
    vec![
        csrf("AccessPolicy/ns/a", &["a.test", "b.test:8443", "[::1]"]),
        csrf("AccessPolicy/ns/b", &["[::1]", "b.test:8443", "c.test"]),
    ]
}

fn csrf(name: &str, origins: &[&str]) -> Csrf {
    Csrf {
        name: name.into(),
        additional_origins: origins.iter().copied().map(Into::into).collect(),
    }
}

pub(super) fn every_certificate() -> Vec<CertificateNames> {
    vec![
        CertificateNames {
            dns_names: vec!["a.test".into()],
            uris: vec!["spiffe://a/b".into()],
            dns_suffixes: vec![".b.test".into()],
            uri_prefixes: vec!["spiffe://a/ns/".into()],
            subject: "CN=ann,O=Example".into(),
        },
        CertificateNames {
            subject: "CN=bob".into(),
            ..CertificateNames::default()
        },
    ]
}

fn rendered(filters: RequestFilters) -> Value {
    printed(None, filtered(filters))["routes"][0].clone()
}

fn filter(route: &Value, place: &str) -> Value {
    let config = &route["typed_per_filter_config"][place];
    let action = &config["matcher"]["on_no_match"]["action"]["typed_config"];
    action["typed_config"]["typed_config"].clone()
}

fn with_csrf(csrf: Vec<Csrf>) -> RequestFilters {
    RequestFilters {
        csrf,
        ..RequestFilters::default()
    }
}

#[test]
fn csrf_accepts_only_origins_of_all_policies() {
    for (checks, origins) in [
        (vec![csrf("a", &[])], &[][..]),
        (
            vec![csrf("a", &["b.test", "a.test"])],
            &["b.test", "a.test"],
        ),
        (every_csrf(), &["b.test:8443", "[::1]"]),
        (vec![csrf("a", &["a.test"]), csrf("b", &[])], &[]),
        (vec![csrf("a", &["a.test"]), csrf("b", &["a.test:80"])], &[]),
    ] {
        let filter = filter(&rendered(with_csrf(checks)), "csrf");
        let found = filter["additional_origins"].as_array().cloned();
        let expected: Vec<Value> = origins.iter().map(|it| json!({"exact": it})).collect();
        assert_eq!(found.unwrap_or_default(), expected);
        let share = &filter["filter_enabled"]["default_value"]["numerator"];
        assert_eq!(share, &json!(100));
        assert_eq!(filter["shadow_enabled"], Value::Null);
    }
}

#[test]
fn invalid_access_check_refuses_requests() {
    let many: Vec<String> = (0..17).map(|i| format!("a{i}.test")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let with_certificate = |certificate: CertificateNames| RequestFilters {
        authorizations: vec![Authorization {
            rules: vec![AuthorizationRule {
                allow: true,
                certificates: vec![certificate],
                ..AuthorizationRule::default()
            }],
            ..Authorization::default()
        }],
        ..RequestFilters::default()
    };
    let uris = |uris: &[&str]| {
        with_certificate(CertificateNames {
            uris: uris.iter().copied().map(Into::into).collect(),
            ..CertificateNames::default()
        })
    };
    assert_eq!(
        rendered(uris(&["spiffe://a/b"]))["direct_response"],
        Value::Null
    );
    for filters in [
        with_csrf(vec![csrf("a", &["null"])]),
        with_csrf(vec![csrf("a", &[""])]),
        with_csrf(vec![csrf("a", &[]), csrf("b", &["https://a.test"])]),
        with_csrf(vec![csrf("a", &many)]),
        with_certificate(CertificateNames::default()),
        with_certificate(CertificateNames {
            dns_suffixes: vec!["test".into()],
            ..CertificateNames::default()
        }),
        with_certificate(CertificateNames {
            uri_prefixes: vec!["spiffe://a".into()],
            ..CertificateNames::default()
        }),
        uris(&[""]),
        uris(&["a"; 6]),
    ] {
        let route = rendered(filters.clone());
        let status = &route["direct_response"]["status"];
        assert_eq!(status, &json!(500), "{filters:?}");
    }
}

/// Collects all principals, each with the number of negations around it.
fn principals(value: &Value, negations: usize, found: &mut Vec<(usize, Value)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if matches!(name.as_str(), "custom" | "authenticated") {
                    found.push((negations, value.clone()));
                } else {
                    let negates = usize::from(name == "not_id");
                    principals(value, negations + negates, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|it| principals(it, negations, found)),
        _ => {}
    }
}

#[test]
fn only_validated_certificates_match() {
    let deny = AuthorizationRule {
        certificates: every_certificate(),
        ..AuthorizationRule::default()
    };
    let route = rendered(RequestFilters {
        authorizations: vec![Authorization {
            rules: vec![deny],
            allow_others: true,
            ..Authorization::default()
        }],
        ..RequestFilters::default()
    });
    let mut found = Vec::new();
    principals(&filter(&route, "authorization"), 0, &mut found);
    let custom = |found: &&(usize, Value)| found.1["name"] != Value::Null;
    let (custom, authenticated): (Vec<_>, Vec<_>) = found.iter().partition(custom);
    let name = json!("envoy.rbac.principals.mtls_authenticated");
    assert!(
        custom.iter().all(|(_, it)| it["name"] == name),
        "{custom:?}"
    );
    let matchers = custom
        .iter()
        .filter(|(negations, _)| *negations == 0)
        .map(|(_, it)| it["typed_config"]["san_matcher"].clone());
    let matchers: Vec<Value> = matchers.filter(|it| !it.is_null()).collect();
    let pattern = |kind: &str, pattern: Value| json!({"san_type": kind, "matcher": pattern});
    assert_eq!(
        matchers,
        [
            pattern("DNS", json!({"safe_regex": {"regex": "(?i)a\\.test"}})),
            pattern("URI", json!({"exact": "spiffe://a/b"})),
            pattern("DNS", json!({"suffix": ".b.test"})),
            pattern("URI", json!({"prefix": "spiffe://a/ns/"})),
        ]
    );
    // Neither a URI nor a DNS name can stand in for a subject.
    for subject in ["CN=ann,O=Example", "CN=bob"] {
        let matcher = json!({"exact": subject});
        let is_subject = |it: &&&(usize, Value)| it.1["principal_name"] == matcher;
        assert_eq!(authenticated.iter().filter(is_subject).count(), 1);
        for kind in ["URI", "DNS"] {
            let excluded = pattern(kind, matcher.clone());
            let is_excluded = |(negations, it): &&&(usize, Value)| {
                *negations == 1 && it["typed_config"]["san_matcher"] == excluded
            };
            assert_eq!(custom.iter().filter(is_excluded).count(), 1, "{kind}");
        }
    }
    let any = |(_, it): &&&(usize, Value)| {
        it["typed_config"]["any_validated_client_certificate"] == json!(true)
    };
    assert_eq!(custom.iter().filter(any).count(), 2);
}
