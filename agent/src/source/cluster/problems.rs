//! What is wrong with what is published, beside what a Gateway that is served waits for. Pure.

use std::collections::BTreeMap;

use sesame_gateway_api::api::NamespacedName;
use sesame_published::names::manifest_name;

use crate::source::problem::{Problem, Severity};
use crate::source::update::GatewayUpdate;

/// The most Gateways that one host can be asked to serve.
pub(super) const MAX_GATEWAYS: usize = 500;

/// A manifest, or a shard, of one Gateway more than that.
pub(super) fn too_many(namespace: &str, name: &str) -> Problem {
    problem(
        format!("ConfigMap/{namespace}/{name}"),
        format!("not served: this host serves {MAX_GATEWAYS} Gateways already"),
    )
}

/// A Gateway that is asked for by name.
pub(super) fn unpublished(namespace: &str, gateway: &NamespacedName) -> Problem {
    problem(
        format!("ConfigMap/{namespace}/{}", manifest_name(gateway)),
        format!("Gateway {gateway} is not published"),
    )
}

/// Gateways of which nothing whole was ever read.
pub(super) fn unserved(
    gateways: &BTreeMap<NamespacedName, GatewayUpdate>,
) -> impl Iterator<Item = Problem> {
    gateways.iter().filter_map(|(gateway, supplied)| {
        let awaited = supplied.awaited.as_ref().filter(|awaited| awaited.stuck)?;
        let unserved = supplied.complete.is_none();
        unserved.then(|| problem(format!("Gateway/{gateway}"), awaited.to_string()))
    })
}

fn problem(file: String, message: String) -> Problem {
    Problem {
        file,
        line: None,
        object: None,
        severity: Severity::Error,
        message,
    }
}
