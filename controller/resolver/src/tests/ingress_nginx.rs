//! Annotations of ingress-nginx that refer to other objects.

use sesame_proto::schema::external_auth::Protocol;
use sesame_proto::schema::route::Action;
use sesame_proto::schema::{ExternalAuthHttp, Forward, Route};

use super::ingresses::{CLASS, annotated, conditions, path, rule};
use super::router::{GET, Request, answer, find};
use super::{ConditionState, HTTP, gateway, holds, resolved};
use crate::Resolution;
use sesame_kinds::status::{ConditionType, Reason};

/// Service `auth` in namespace `login`, with ports 80 and 8080.
const LOGIN: &str = r"
---
kind: Service
metadata: {name: auth, namespace: login}
spec: {ports: [{name: http, port: 80}, {name: alt, port: 8080}]}
";

fn grant(kind: &str, to: &str) -> String {
    format!(
        "---\nkind: ReferenceGrant\nmetadata: {{name: g-{}, namespace: login}}\nspec:\n  from: [{{group: \
         networking.k8s.io, kind: {kind}, namespace: web}}]\n  to: [{{group: \"\", kind: {to}}}]\n",
        to.to_lowercase()
    )
}

/// Annotation names omit the common prefix.
pub(super) fn with(annotations: &[(&str, &str)], objects: &str) -> Resolution {
    let annotations = annotations.iter().map(|(name, value)| {
        let value = serde_json::Value::from(*value);
        format!("\"nginx.ingress.kubernetes.io/{name}\": {value}")
    });
    let annotations: Vec<String> = annotations.collect();
    let annotations = format!("{{{}}}", annotations.join(", "));
    let spec = rule("h.test", &[path("/", "Prefix", "a")]);
    let class = CLASS.replace(
        "{name: edge}",
        "{name: edge, annotations: {projectsesame.io/annotations: Nginx}}",
    );
    let ingress = annotated("i", &annotations, &spec);
    let gateway = gateway(HTTP);
    resolved(&format!("{gateway}{class}{ingress}{LOGIN}{objects}"))
}

const ASKED: Request<'static> = Request {
    host: "h.test",
    ..GET
};

fn answered(resolution: &Resolution) -> String {
    answer(&resolution.gateways[0].snapshot, &ASKED)
}

pub(super) fn served(resolution: &Resolution) -> &Route {
    find(&resolution.gateways[0].snapshot, &ASKED).expect("a route")
}

fn forward(resolution: &Resolution) -> &Forward {
    match &served(resolution).action {
        Some(Action::Forward(forward)) => forward,
        other => panic!("{other:?}"),
    }
}

pub(super) fn messages(resolution: &Resolution) -> String {
    let problems = resolution.problems.iter();
    let problems: Vec<&str> = problems.map(|it| it.message.as_str()).collect();
    problems.join("\n")
}

fn asked(resolution: &Resolution) -> (String, ExternalAuthHttp) {
    let [auth] = served(resolution).external_auth.as_slice() else {
        panic!("{:?}", served(resolution));
    };
    match &auth.protocol {
        Some(Protocol::Http(http)) => (auth.backend.clone(), http.clone()),
        other => panic!("{other:?}"),
    }
}

/// Asserts that requests get 500 and that the condition contains `why`.
pub(super) fn assert_refused(annotations: &[(&str, &str)], objects: &str, why: &str) {
    let resolution = with(annotations, objects);
    assert_eq!(answered(&resolution), "500", "{annotations:?}");
    let conditions = conditions(&resolution, "i");
    let refused = ConditionState::False(Reason::UnsupportedValue);
    assert_eq!(
        holds(conditions, ConditionType::Accepted),
        refused,
        "{annotations:?}"
    );
    let all = format!("{conditions:?}");
    assert!(all.contains(why), "{annotations:?}: {all}");
}

#[test]
fn auth_url_asks_service_at_its_path() {
    let grant = grant("Ingress", "Service");
    for (url, objects, backend, path) in [
        ("http://b.web", "", "web/b/80", "/"),
        (
            "http://b.web.svc.cluster.local/check?a=b",
            "",
            "web/b/80",
            "/check?a=b",
        ),
        ("http://b.web.svc?a", "", "web/b/80", "/?a"),
        (
            "http://auth.login.svc:8080/check",
            grant.as_str(),
            "login/auth/8080",
            "/check",
        ),
    ] {
        let annotations = [
            ("auth-url", url),
            ("auth-response-headers", "X-User, x-role,X-User"),
            ("satisfy", "all"),
        ];
        let resolution = with(&annotations, objects);
        let (asked_backend, http) = asked(&resolution);
        assert!(asked_backend.ends_with(backend), "{asked_backend}");
        let expected = ExternalAuthHttp {
            response_headers: vec!["x-role".to_owned(), "x-user".to_owned()],
            path: path.to_owned(),
            subrequest: true,
            ..ExternalAuthHttp::default()
        };
        assert_eq!(http, expected, "{url}");
        assert_eq!(answered(&resolution), "web/a/80");
        let said = messages(&resolution);
        assert!(said.contains("client's method"), "{said}");
    }
}

#[test]
fn invalid_auth_url_refuses_all_requests() {
    for (url, why) in [
        ("", "expected the URL of a Service"),
        ("https://b.web/check", "expected the URL of a Service"),
        ("http://auth.example.com/", "expected the URL of a Service"),
        ("http://b/check", "expected the URL of a Service"),
        ("http://b.web@evil.test/", "expected the URL of a Service"),
        ("http://$host/check", "expected the URL of a Service"),
        (
            "http://b.web/check?rd=$request_uri",
            "variables are not supported",
        ),
        ("http://b.web/check#top", "invalid in a path"),
        ("http://b.web/a\r\nx-user: admin", "invalid in a path"),
        ("http://gone.web/check", "Service web/gone does not exist"),
        ("http://b.web:8080/check", "has no port 8080"),
        ("http://auth.login/check", "no ReferenceGrant"),
    ] {
        assert_refused(&[("auth-url", url)], "", why);
    }
    let long = format!("http://b.web/{}", "a".repeat(1024));
    assert_refused(&[("auth-url", &long)], "", "path");
    let truncated = format!("http://b.web/{}", "a".repeat(10_000));
    assert_refused(
        &[("auth-url", &truncated)],
        "",
        "fewer than 8192 characters",
    );
    for grant in [grant("HTTPRoute", "Service"), grant("Ingress", "Secret")] {
        let url = "http://auth.login/check";
        assert_refused(&[("auth-url", url)], &grant, "no ReferenceGrant");
    }
}

#[test]
fn annotations_that_change_authorization_are_refused() {
    const URL: (&str, &str) = ("auth-url", "http://b.web/check");
    for (name, value, why) in [
        ("auth-method", "GET", "cannot be changed"),
        ("auth-response-headers", "Authorization", "client's value"),
        ("auth-signin", "https://login.test/$uri", "variables"),
        ("auth-signin-redirect-param", "a&b", "letters"),
        ("auth-response-headers", "host", "selects the host"),
        ("auth-response-headers", "a b", "not a token"),
        ("auth-snippet", "proxy_set_header a b;", "auth-snippet"),
        ("auth-proxy-set-headers", "web/set", "auth-proxy-set"),
        ("auth-url-2", "http://b.web/", "auth-url-2"),
        ("satisfy", "one", "expected all or any"),
    ] {
        assert_refused(&[URL, (name, value)], "", why);
    }
    assert_refused(&[("satisfy", "Any")], "", "expected all or any");
    let names: Vec<String> = (0..65).map(|i| format!("x-{i}")).collect();
    let names = names.join(",");
    assert_refused(&[URL, ("auth-response-headers", &names)], "", "header");
}

#[test]
fn auth_settings_without_effect_are_reported() {
    let resolution = with(
        &[
            ("auth-url", "http://b.web/check"),
            ("auth-cache-key", "$remote_user"),
            ("auth-cache-duration", "200 5m"),
            ("auth-keepalive", "4"),
            ("auth-always-set-cookie", "true"),
        ],
        "",
    );
    assert_eq!(asked(&resolution).1.response_headers, [""; 0]);
    let said = messages(&resolution);
    for name in ["auth-cache-key", "auth-cache-duration", "auth-keepalive"] {
        assert!(said.contains(&format!("{name} has no effect")), "{said}");
    }
    assert!(!said.contains("auth-always-set-cookie"), "{said}");

    let resolution = with(&[("auth-method", "POST"), ("satisfy", "all")], "");
    assert_eq!(answered(&resolution), "web/a/80");
    let said = messages(&resolution);
    assert!(said.contains("there is no auth-url"), "{said}");
}

#[test]
fn redirects_come_before_authorization() {
    let annotations = [
        ("auth-url", "http://b.web/check"),
        ("permanent-redirect", "https://new.test/x"),
    ];
    let resolution = with(&annotations, "");
    assert_eq!(served(&resolution).external_auth, []);
}

#[test]
fn mirror_target_receives_copies() {
    let grant = grant("Ingress", "Service");
    for (target, backend) in [
        ("http://b.web$request_uri", "web/b/80"),
        (
            "http://auth.login.svc.cluster.local:8080/$request_uri",
            "login/auth/8080",
        ),
    ] {
        let annotations = [("mirror-target", target), ("mirror-request-body", "on")];
        let resolution = with(&annotations, &grant);
        let [mirror] = forward(&resolution).mirrors.as_slice() else {
            panic!("{target}");
        };
        assert!(mirror.backend.ends_with(backend), "{}", mirror.backend);
        assert_eq!(mirror.numerator, mirror.denominator);
        assert_eq!(messages(&resolution), "");
    }
}

#[test]
fn invalid_mirror_target_has_no_effect() {
    for (name, value) in [
        ("mirror-target", "https://mirror.test/$request_uri"),
        ("mirror-target", "http://b.web/fixed"),
        ("mirror-target", "http://gone.web$request_uri"),
        ("mirror-target", "http://auth.login$request_uri"),
        ("mirror-request-body", "off"),
        ("mirror-host", "b.test"),
        ("custom-http-errors", "404,503"),
    ] {
        let resolution = with(&[(name, value)], "");
        assert_eq!(forward(&resolution).mirrors, [], "{value}");
        let said = messages(&resolution);
        assert!(said.contains(name) && said.contains("no effect"), "{said}");
        assert_eq!(answered(&resolution), "web/a/80");
    }
}

#[test]
fn custom_headers_are_set_on_responses() {
    let map = |namespace: &str| {
        format!(
            "---\nkind: ConfigMap\nmetadata: {{name: set, namespace: {namespace}}}\ndata: {{X-Frame-Options: \
             DENY, content-length: \"0\", bad: \"a\\nb\", X-Percent: \"%REQ(cookie)%\"}}\n"
        )
    };
    let granted = map("login") + &grant("Ingress", "ConfigMap");
    for (name, objects) in [
        ("set", map("web")),
        ("web/set", map("web")),
        ("login/set", granted),
    ] {
        let resolution = with(&[("custom-headers", name)], &objects);
        let changed = served(&resolution).response_headers.as_ref();
        let set = changed.map(|it| it.set.as_slice()).unwrap_or_default();
        let set: Vec<(&str, &str)> = set.iter().map(|it| (&*it.name, &*it.value)).collect();
        let expected = [("X-Frame-Options", "DENY"), ("X-Percent", "%REQ(cookie)%")];
        assert_eq!(set, expected, "{name}");
        let said = messages(&resolution);
        for bad in ["content-length", "bad.value"] {
            assert!(said.contains(bad), "{said}");
        }
    }
    for (name, objects, why) in [
        ("gone", map("web"), "does not exist"),
        ("login/set", map("login"), "no ReferenceGrant"),
        ("", map("web"), "does not exist"),
    ] {
        let resolution = with(&[("custom-headers", name)], &objects);
        assert_eq!(served(&resolution).response_headers, None);
        assert!(messages(&resolution).contains(why), "{name}");
        assert_eq!(answered(&resolution), "web/a/80");
    }
}

pub(super) const USERS: &str = r#"
---
kind: Secret
metadata: {name: users, namespace: web}
type: Opaque
stringData: {auth: "ann:{SHA}tiY7sUhYKUwI5L3866kDY+ENcrQ=\n", bcrypt: "ann:$2y$05$hush"}
---
kind: Secret
metadata: {name: map, namespace: web}
type: Opaque
stringData: {ann: "{SHA}tiY7sUhYKUwI5L3866kDY+ENcrQ="}
---
kind: Secret
metadata: {name: hash, namespace: web}
type: Opaque
stringData: {auth: "ann:$apr1$hush"}
---
kind: Secret
metadata: {name: apr1, namespace: web}
type: Opaque
stringData: {auth: "ann:$apr1$saltsalt$WoESZIlCyPaOHxFHP.vy51\n"}
"#;

#[test]
fn passwords_come_from_file_or_entries() {
    for annotations in [
        &[("auth-type", "basic"), ("auth-secret", "users")][..],
        &[("auth-type", "basic"), ("auth-secret", "web/users")],
        &[
            ("auth-type", "basic"),
            ("auth-secret", "map"),
            ("auth-secret-type", "auth-map"),
        ],
    ] {
        let resolution = with(annotations, USERS);
        let filters = served(&resolution).filters.as_deref().unwrap();
        assert_eq!(filters.credentials, "Ingress/web/i/basicAuth");
        assert_eq!(filters.token_headers, ["authorization"]);
        let [pair] = resolution.gateways[0].keys.as_slice() else {
            panic!("{annotations:?}");
        };
        assert_eq!(pair.private_key, b"ann:{SHA}tiY7sUhYKUwI5L3866kDY+ENcrQ=\n");
        assert_eq!(messages(&resolution), "");
    }
}

#[test]
fn default_format_of_htpasswd_is_served() {
    let resolution = with(&[("auth-type", "basic"), ("auth-secret", "apr1")], USERS);
    let filters = served(&resolution).filters.as_deref().unwrap();
    assert_eq!(filters.credentials, "Ingress/web/i/basicAuth");
    let pair = &resolution.gateways[0].keys[0];
    assert!(pair.private_key.starts_with(b"ann:$apr1$"));
    assert_eq!(messages(&resolution), "");
}

#[test]
fn invalid_passwords_refuse_requests() {
    let basic = ("auth-type", "basic");
    for (annotations, why) in [
        (&[("auth-type", "digest")][..], "expected basic"),
        (&[basic], "there is no auth-secret"),
        (&[basic, ("auth-secret", "gone")], "does not exist"),
        (&[basic, ("auth-secret", "login/users")], "own namespace"),
        (&[basic, ("auth-secret", "hash")], "expected a digest as"),
        (
            &[basic, ("auth-secret", "users"), ("auth-secret-type", "x")],
            "expected auth-file or auth-map",
        ),
        (
            &[
                basic,
                ("auth-secret", "users"),
                ("auth-secret-type", "auth-map"),
            ],
            "expected a digest as",
        ),
    ] {
        assert_refused(annotations, USERS, why);
    }
}
