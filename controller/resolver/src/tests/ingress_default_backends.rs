//! The annotation `default-backend` of ingress-nginx.

use sesame_proto::schema::Backend;

use super::ingress_nginx::{messages, with};
use crate::Resolution;

const ERRORS: &str = "---
kind: Service
metadata: {name: errors, namespace: web}
spec: {ports: [{name: http, port: 8080}, {name: metrics, port: 9090}]}
---
kind: Service
metadata: {name: none, namespace: web}
spec: {ports: []}
";

fn backends(resolution: &Resolution) -> &[Backend] {
    &resolution.gateways[0].snapshot.backends
}

#[test]
fn default_backend_is_a_fallback_with_own_endpoints() {
    let resolution = with(&[("default-backend", "errors")], ERRORS);
    let [own, errors] = backends(&resolution) else {
        panic!("{:?}", backends(&resolution));
    };
    assert_eq!(own.endpoints, "Service/web/a/80");
    assert_eq!(own.fallback, errors.name);
    assert_eq!(errors.name, "Service/web/errors/8080");
    let sets = &resolution.gateways[0].snapshot.endpoints;
    assert!(sets.iter().any(|set| set.name == errors.endpoints));
    assert_eq!(messages(&resolution), "");
}

#[test]
fn unusable_default_backend_is_reported() {
    for (annotations, why) in [
        (&[("default-backend", "gone")][..], "does not exist"),
        (&[("default-backend", "none")][..], "has no ports"),
        (
            &[("default-backend", "errors"), ("affinity", "cookie")][..],
            "the Ingress has affinity",
        ),
    ] {
        let resolution = with(annotations, ERRORS);
        let has_fallback = backends(&resolution)
            .iter()
            .any(|it| !it.fallback.is_empty());
        assert!(!has_fallback, "{annotations:?}");
        let said = messages(&resolution);
        assert!(said.contains("default-backend"), "{said}");
        assert!(said.contains(why), "{said}");
    }
}
