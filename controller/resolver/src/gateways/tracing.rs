//! Resolves each Gateway's tracing. The oldest XTelemetryPolicy that targets the Gateway applies,
//! or else the Gateway's settings.
//!
//! Unsupported settings disable tracing entirely, but do not affect requests.

use super::collectors::{self, FoundCollector};
use super::telemetry_policies::{TelemetryPolicies, TelemetryPolicy};
use crate::backends::{Backends, PolicedBackend};
use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use crate::settings::tracing::{self, ConfiguredTracing, TracingDecision};
use sesame_kinds::api::{BackendObjectRef, Metadata, NamespacedName, TracingSettings};
use sesame_kinds::status::{Grounds, Reason, Verdict};
use sesame_kinds::world::Kind;
use sesame_proto::schema;

#[derive(Debug, Default)]
pub(crate) struct GatewayTracing<'w> {
    /// `None` if the Gateway's settings apply or tracing is not configured.
    pub(crate) policy: Option<&'w Metadata>,
    pub(crate) accepted: Verdict,
    pub(crate) resolved: Verdict,
    /// `None` if tracing is disabled.
    pub(crate) traces: Option<schema::Tracing>,
    pub(crate) policed: Vec<PolicedBackend<'w>>,
}

pub(super) struct TracedGateway<'g> {
    pub(super) metadata: &'g Metadata,
    pub(super) merged: Option<&'g NamespacedName>,
    pub(super) meshed: bool,
    pub(super) configured: Option<&'g ConfiguredTracing>,
}

pub(super) fn check<'w>(
    gateway: &TracedGateway<'_>,
    policies: &TelemetryPolicies<'w>,
    backends: &mut Backends<'w>,
    cx: &ResolveContext<'w, '_>,
) -> (GatewayTracing<'w>, Option<String>) {
    let mut found = GatewayTracing::default();
    if let Some(TelemetryPolicy { object, accepted }) =
        policies.for_gateway(gateway.metadata).first()
    {
        found.policy = Some(&object.metadata);
        found.accepted = accepted.clone();
        if gateway.merged.is_some() {
            let why = "the Gateway shares Envoys with others of its class, so its tracing cannot \
                differ; set spec.tracing of the SesameConfiguration that its GatewayClass names";
            found.accepted.refuse(Reason::UnsupportedValue, why);
        }
        if !found.accepted.good() {
            return (found, None);
        }
        let namespace = object.metadata.namespace.as_str();
        let referrer = Referrer::new(Kind::XTelemetryPolicy, namespace);
        let unsaid = TracingSettings::default();
        match tracing::read(object.spec.tracing.as_ref().unwrap_or(&unsaid)) {
            Ok(TracingDecision::Off) => return (found, None),
            Ok(TracingDecision::To(collector, traces)) => {
                let outcome = found.send(gateway, collector, traces, referrer, backends, cx);
                if let Err((reason, why)) = outcome {
                    let message = format!("spec.tracing.provider.backendRef: {why}");
                    let verdict = match reason {
                        Reason::UnsupportedValue => &mut found.accepted,
                        _ => &mut found.resolved,
                    };
                    verdict.refuse(reason, format!("{message}; nothing is traced"));
                }
                return (found, None);
            }
            Ok(TracingDecision::Inherit) | Err(_) => {}
        }
    }
    let Some(ConfiguredTracing { namespace, spec }) = gateway.configured else {
        return (found, None);
    };
    // An earlier check has validated these settings.
    let Ok(TracingDecision::To(collector, traces)) = tracing::read(spec) else {
        return (found, None);
    };
    let referrer = Referrer::new(Kind::SesameConfiguration, namespace);
    let outcome = found.send(gateway, collector, traces, referrer, backends, cx);
    let fault = outcome.err().map(|(_, why)| {
        format!(
            "spec.tracing.provider.backendRef of a SesameConfiguration: {why}; nothing is traced"
        )
    });
    (found, fault)
}

impl<'w> GatewayTracing<'w> {
    fn send(
        &mut self,
        gateway: &TracedGateway<'_>,
        collector: &BackendObjectRef,
        mut traces: schema::Tracing,
        referrer: Referrer<'_>,
        backends: &mut Backends<'w>,
        cx: &ResolveContext<'w, '_>,
    ) -> Result<(), Grounds> {
        let (policed, meshed) = (&mut self.policed, gateway.meshed);
        let FoundCollector { backend, http } = collectors::find(
            collector, referrer, meshed, "tracing", policed, backends, cx,
        )?;
        traces.backend = backend;
        traces.http = http;
        self.traces = Some(traces);
        Ok(())
    }
}
