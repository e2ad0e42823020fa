//! The objects that make a Gateway answer an HTTP-01 challenge.

use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{Kind, ObjectKey};
use sesame_proto::digest::sha256;

use crate::{ACME_KEY, CertificateRequest, ChallengeParent};

/// Path below which CAs request challenges.
pub const WELL_KNOWN: &str = "/.well-known/acme-challenge/";
/// Maximum number of a route's parents in the Gateway API.
pub const MAX_PARENTS: usize = 32;
/// Maximum length of a token or a key authorization; CAs use about 90 characters.
const MAX_TOKEN: usize = 512;

/// A pending HTTP-01 challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Namespace of the requested Secret.
    pub namespace: String,
    /// Hostname to validate.
    pub hostname: String,
    /// Token that the CA chose.
    pub token: String,
    /// Expected content.
    pub key_authorization: String,
}

/// A challenge that a CA should not have sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChallengeError;

impl std::fmt::Display for ChallengeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the CA sent a malformed challenge token; expected 1 to {MAX_TOKEN} base64url characters"
        )
    }
}

impl std::error::Error for ChallengeError {}

/// An object to create.
#[derive(Clone, Debug, PartialEq)]
pub struct ChallengeObject {
    /// HTTPRoute or RouteFilter.
    pub kind: Kind,
    /// Name of the object.
    pub name: NamespacedName,
    /// The object, as in the Kubernetes API.
    pub value: Value,
}

impl Challenge {
    /// Rejects tokens that are not base64url, because they become part of a path.
    pub fn new(
        namespace: &str,
        hostname: &str,
        token: &str,
        key_authorization: &str,
    ) -> Result<Self, ChallengeError> {
        let is_token = |text: &str, extra: u8| {
            let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            (1..=MAX_TOKEN).contains(&text.len())
                && text.bytes().all(|byte| valid(byte) || byte == extra)
        };
        if !is_token(token, b'-') || !is_token(key_authorization, b'.') {
            return Err(ChallengeError);
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            hostname: hostname.to_owned(),
            token: token.to_owned(),
            key_authorization: key_authorization.to_owned(),
        })
    }

    /// Returns the path that the CA requests.
    pub fn path(&self) -> String {
        format!("{WELL_KNOWN}{}", self.token)
    }

    /// Returns the name of both objects.
    pub fn object_name(&self) -> NamespacedName {
        let Self {
            namespace,
            hostname,
            token,
            key_authorization: _,
        } = self;
        let mut digest = sha256(format!("{hostname}/{token}").as_bytes());
        digest.truncate(16);
        NamespacedName::new(namespace, &format!("acme-{digest}"))
    }

    /// Returns the filter and the route. The exact path takes precedence over other routes.
    pub fn objects(&self, request: &CertificateRequest) -> [ChallengeObject; 2] {
        let name = self.object_name();
        let metadata = json!({
            "name": name.name,
            "namespace": name.namespace,
            "labels": { ACME_KEY: "challenge" },
        });
        let parents = request.parents.iter().take(MAX_PARENTS);
        let parents: Vec<Value> = parents.map(|parent| self.reference(parent)).collect();
        let api = |kind: Kind| kind.api_versions().first().copied().unwrap_or_default();
        let filter = json!({
            "apiVersion": api(Kind::RouteFilter),
            "kind": "RouteFilter",
            "metadata": metadata,
            "spec": {
                "directResponse": { "statusCode": 200, "body": self.key_authorization },
            },
        });
        let reference = json!({
            "group": "projectsesame.io", "kind": "RouteFilter", "name": name.name,
        });
        let route = json!({
            "apiVersion": api(Kind::HttpRoute),
            "kind": "HTTPRoute",
            "metadata": metadata,
            "spec": {
                "parentRefs": parents,
                "hostnames": [self.hostname],
                "rules": [{
                    "matches": [{ "path": { "type": "Exact", "value": self.path() } }],
                    "filters": [{ "type": "ExtensionRef", "extensionRef": reference }],
                }],
            },
        });
        [(Kind::RouteFilter, filter), (Kind::HttpRoute, route)].map(|(kind, value)| {
            ChallengeObject {
                kind,
                name: name.clone(),
                value,
            }
        })
    }

    fn reference(&self, parent: &ChallengeParent) -> Value {
        let ChallengeParent {
            object: ObjectKey { kind, name },
            gateway: _,
            listener,
            port: _,
            opened: _,
        } = parent;
        let mut reference = json!({ "name": name.name, "sectionName": listener });
        if *kind != Kind::Gateway {
            reference["kind"] = json!(kind.as_str());
        }
        if name.namespace != self.namespace {
            reference["namespace"] = json!(name.namespace);
        }
        reference
    }
}

#[cfg(test)]
mod tests {
    use sesame_kinds::decode::decode_value;

    use super::*;
    use crate::plan::tests::request;

    #[test]
    fn challenge_objects_decode_without_unknown_fields() {
        let challenge = Challenge::new("shop", "a.example.com", "tok-en", "tok-en.thumb").unwrap();
        let mut request = request(&["a.example.com"]);
        let own = request.parents.first().unwrap().clone();
        request.parents.insert(ChallengeParent {
            object: Kind::ListenerSet.named(NamespacedName::new("shop", "set")),
            ..own.clone()
        });
        let elsewhere = NamespacedName::new("infra", "edge");
        request.parents.insert(ChallengeParent {
            object: Kind::Gateway.named(elsewhere),
            ..own
        });
        let [_, ChallengeObject { value: route, .. }] = challenge.objects(&request);
        let expected = json!([
            { "name": "edge", "sectionName": "http", "namespace": "infra" },
            { "name": "edge", "sectionName": "http" },
            { "name": "set", "sectionName": "http", "kind": "ListenerSet" },
        ]);
        assert_eq!(route["spec"]["parentRefs"], expected);
        for ChallengeObject { kind, name, value } in challenge.objects(&request) {
            let version = value["apiVersion"].as_str().unwrap().to_owned();
            let decoded = decode_value(value, kind, &version).unwrap();
            assert_eq!(decoded.object.key(), kind.named(name));
            assert!(decoded.unknown_fields.is_empty());
        }
    }

    #[test]
    fn tokens_that_leave_the_path_are_rejected() {
        for token in ["", "../x", "a/b", "a.b", "a?b", "a%2f", &"a".repeat(513)] {
            let refused = Challenge::new("shop", "a.example.com", token, "a.b");
            assert_eq!(refused, Err(ChallengeError), "{token}");
        }
    }
}
