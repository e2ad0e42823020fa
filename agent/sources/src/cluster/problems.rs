//! Problems with published objects, except incomplete revisions of served Gateways.

use std::collections::BTreeMap;

use sesame_kinds::api::NamespacedName;
use sesame_published::names::manifest_name;

use crate::problem::{Severity, SourceProblem};
use crate::update::GatewayUpdate;

pub(super) const MAX_GATEWAYS: usize = 500;

pub(super) fn too_many(namespace: &str, name: &str) -> SourceProblem {
    problem(
        format!("ConfigMap/{namespace}/{name}"),
        format!("not served: this host already serves {MAX_GATEWAYS} Gateways"),
    )
}

pub(super) fn unpublished(namespace: &str, gateway: &NamespacedName) -> SourceProblem {
    problem(
        format!("ConfigMap/{namespace}/{}", manifest_name(gateway)),
        format!("Gateway {gateway} is not published"),
    )
}

pub(super) fn unserved(
    gateways: &BTreeMap<NamespacedName, GatewayUpdate>,
) -> impl Iterator<Item = SourceProblem> {
    gateways.iter().filter_map(|(gateway, update)| {
        let incomplete = update
            .incomplete
            .as_ref()
            .filter(|incomplete| incomplete.stuck)?;
        let unserved = update.complete.is_none();
        unserved.then(|| problem(format!("Gateway/{gateway}"), incomplete.to_string()))
    })
}

fn problem(file: String, message: String) -> SourceProblem {
    SourceProblem::of_file(Severity::Error, file, message)
}
