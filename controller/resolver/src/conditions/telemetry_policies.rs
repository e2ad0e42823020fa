//! Conditions of XTelemetryPolicies, for each targeted Gateway.

use std::collections::BTreeMap;

use super::policies::{ancestor, applied};
use crate::gateways::CheckedGateway;
use crate::gateways::telemetry_policies::TelemetryPolicies;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{PolicyStatus, Reason, Verdict};

/// A policy gets at most one status entry per target reference.
pub(crate) fn statuses(
    gateways: &[CheckedGateway<'_>],
    policies: &TelemetryPolicies<'_>,
    controller_name: &str,
) -> BTreeMap<NamespacedName, PolicyStatus> {
    let mut statuses: BTreeMap<NamespacedName, PolicyStatus> = BTreeMap::new();
    // Gateways are sorted by name, so the entries are sorted too.
    for gateway in gateways {
        let tracing = &gateway.tracing;
        let oldest = tracing.policy.map(sesame_kinds::api::Metadata::key);
        for policy in policies.for_gateway(gateway.metadata) {
            let metadata = &policy.object.metadata;
            let conditions = match &oldest {
                Some(oldest) if *oldest != metadata.key() => {
                    let mut verdict = Verdict::default();
                    let why = format!(
                        "XTelemetryPolicy {oldest} is older and also applies to Gateway {}",
                        gateway.name()
                    );
                    verdict.refuse(Reason::Conflicted, why);
                    vec![verdict.accepted("", metadata.generation)]
                }
                _ => applied(metadata, &tracing.accepted, &tracing.resolved),
            };
            let status = statuses.entry(metadata.key()).or_default();
            let ancestor = ancestor(&gateway.name(), controller_name, conditions);
            status.ancestors.push(ancestor);
        }
    }
    statuses
}
