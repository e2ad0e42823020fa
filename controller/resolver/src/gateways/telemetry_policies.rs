//! Finds the XTelemetryPolicies that target each Gateway.

use super::gateway_policies::{CheckedPolicy, GatewayPolicies, GatewayPolicy};
use crate::context::ResolveContext;
use crate::settings::tracing;
use crate::syntax::limits;
use sesame_kinds::api::{
    LocalPolicyTargetRef, Metadata, TracingSettings, XTelemetryPolicy, XTelemetryPolicySpec,
};
use sesame_kinds::status::{Reason, Verdict};
use sesame_kinds::world::Kind;

pub(crate) type TelemetryPolicy<'w> = CheckedPolicy<'w, XTelemetryPolicy>;

pub(crate) type TelemetryPolicies<'w> = GatewayPolicies<'w, XTelemetryPolicy>;

impl GatewayPolicy for XTelemetryPolicy {
    const KIND: Kind = Kind::XTelemetryPolicy;

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn targets(&self) -> &[LocalPolicyTargetRef] {
        &self.spec.target_refs
    }
}

pub(crate) fn check_all<'w>(cx: &mut ResolveContext<'w, '_>) -> TelemetryPolicies<'w> {
    let objects = cx.world.x_telemetry_policies.iter();
    let objects = objects.map(AsRef::as_ref).collect();
    GatewayPolicies::check_all(objects, cx, check)
}

fn check(object: &XTelemetryPolicy, accepted: &mut Verdict) {
    let XTelemetryPolicySpec {
        target_refs,
        tracing,
    } = &object.spec;
    let targets = target_refs.iter().take(limits::MAX_POLICY_TARGETS);
    for (i, target) in targets.enumerate() {
        if target_refs.iter().take(i).any(|other| other == target) {
            let why = format!("spec.targetRefs[{i}] is listed twice");
            accepted.refuse(Reason::Invalid, why);
        }
    }
    let unsaid = TracingSettings::default();
    if let Err((reason, why)) = tracing::read(tracing.as_ref().unwrap_or(&unsaid)) {
        accepted.refuse(reason, format!("spec.tracing.{why}"));
    }
}
