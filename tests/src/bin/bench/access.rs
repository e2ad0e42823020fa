//! AccessPolicies whose cost is measured, each with a single part, and the credentials that they need.

use std::sync::LazyLock;

use serde_json::{Value, json};
use sesame_tests::tokens::Issuer;

use super::client;
use super::manifests::gateway_name;

/// The measured part of an AccessPolicy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    IpFilter,
    Jwt,
    BasicAuth,
    Authorization,
}

impl Part {
    pub(crate) const ALL: [Self; 4] = [
        Self::IpFilter,
        Self::Jwt,
        Self::BasicAuth,
        Self::Authorization,
    ];

    pub(crate) fn names(self) -> [&'static str; 2] {
        match self {
            Self::IpFilter => ["ipFilter, Gateway", "ipFilter, each route"],
            Self::Jwt => ["jwt, Gateway", "jwt, each route"],
            Self::BasicAuth => ["basicAuth, Gateway", "basicAuth, each route"],
            Self::Authorization => ["authorization, Gateway", "authorization, each route"],
        }
    }

    fn spec(self) -> Value {
        match self {
            Self::IpFilter => json!({"ipFilter": {"deny": ["192.0.2.0/24"]}}),
            Self::Jwt => json!({"jwt": {"providers": [{
                "name": "corp", "issuer": ISSUER, "jwks": {"inline": CREDENTIALS.keys},
                "sources": [{"header": {"name": TOKEN}}],
            }]}}),
            Self::BasicAuth => json!({"basicAuth": {"users": {"name": "users"}}}),
            Self::Authorization => json!({"authorization": {
                "rules": [{"action": "Allow", "methods": ["GET"], "paths": [{"value": "/"}]}],
            }}),
        }
    }
}

const ISSUER: &str = "https://id.test";
const TOKEN: &str = "x-token";

/// User `ann` with password `secret`, as digest and as header.
const USERS: &str = "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
const PASSWORD: &str = "Basic YW5uOnNlY3JldA==";

/// All requests have the same credentials, whether or not a policy needs them.
pub(crate) fn send_credentials() {
    client::add_headers(CREDENTIALS.headers.clone());
}

struct Credentials {
    keys: String,
    headers: String,
}

static CREDENTIALS: LazyLock<Credentials> = LazyLock::new(|| {
    let issuer = Issuer::new(ISSUER, "bench");
    let token = issuer.token(&json!({"sub": "ann"}));
    Credentials {
        keys: Issuer::jwks(&[&issuer]),
        headers: format!("authorization: {PASSWORD}\r\n{TOKEN}: {token}\r\n"),
    }
});

/// Returns one policy for the Gateway, or one for each of the routes.
pub(crate) fn objects(part: Part, each: bool, routes: usize) -> Vec<Value> {
    let policy = |name: &str, kind: &str, target: &str| {
        let mut spec = part.spec();
        spec["targetRefs"] =
            json!([{"group": "gateway.networking.k8s.io", "kind": kind, "name": target}]);
        json!({
            "apiVersion": "projectsesame.io/v1alpha1", "kind": "AccessPolicy",
            "metadata": {"name": name, "namespace": "bench"}, "spec": spec,
        })
    };
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "users", "namespace": "bench"}, "stringData": {".htpasswd": USERS},
    })];
    if each {
        let all = 0..routes;
        let own = all.map(|it| policy(&format!("p{it}"), "HTTPRoute", &format!("r{it}")));
        objects.extend(own);
    } else {
        objects.push(policy("all", "Gateway", &gateway_name(0)));
    }
    objects
}
