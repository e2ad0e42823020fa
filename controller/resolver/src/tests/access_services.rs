//! AccessPolicies with authorization services.

use super::access_policies::{conditions, policy};
use super::traffic_policies::{SCOPES, first, is_refused, served};

fn asks(spec: &str) -> String {
    policy("p", SCOPES[1], &format!(", extAuth: {{{spec}}}"))
}

const GRPC: &str = "protocol: GRPC, backendRef: {name: a, port: 80}";

#[test]
fn invalid_authorization_service_refuses_requests() {
    for (spec, why) in [
        (
            "protocol: TCP, backendRef: {name: a, port: 80}".to_owned(),
            "extAuth.protocol",
        ),
        (
            "protocol: GRPC, backendRef: {name: none, port: 80}".to_owned(),
            "Service web/none does not exist",
        ),
        (
            "protocol: GRPC, backendRef: {name: a}".to_owned(),
            "port is missing",
        ),
        (
            "protocol: GRPC, backendRef: {name: a, port: 81}".to_owned(),
            "has no port 81",
        ),
        (format!("{GRPC}, http: {{path: /check}}"), "extAuth.http"),
        (
            format!("{GRPC}, grpc: {{allowedHeaders: ['a b']}}"),
            "extAuth.grpc.allowedHeaders",
        ),
        (
            format!("{GRPC}, forwardBody: {{maxSize: 70000000}}"),
            "extAuth.forwardBody.maxSize",
        ),
        (
            "protocol: GRPC, backendRef: {name: a, namespace: other, port: 80}".to_owned(),
            "ReferenceGrant",
        ),
    ] {
        let resolution = served(&asks(&spec));
        assert!(is_refused(&resolution), "{spec}");
        let message = &conditions(&resolution, "p")[0].message;
        assert!(message.contains(why), "{message}");
    }
    let resolution = served(&asks(GRPC));
    assert_eq!(first(&resolution).external_auth.len(), 1);
}
