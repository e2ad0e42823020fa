//! Resolves the collectors that receive a Gateway's spans and access logs.
//!
//! The configuring object must be permitted to reference the collector.

use super::tracing::{self, TracedGateway};
use super::{CheckedGateway, ReferencedObjects, log_output};
use crate::backends::{BackendTarget, Backends, PolicedBackend, ResolvedRef};
use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use sesame_kinds::api::BackendObjectRef;
use sesame_kinds::status::{Grounds, Reason};

pub(super) struct FoundCollector {
    pub(super) backend: String,
    /// True for HTTP, false for gRPC.
    pub(super) http: bool,
}

/// Fails if the Gateway is `meshed`. `what` names the kind of telemetry in error messages.
pub(super) fn find<'w>(
    collector: &BackendObjectRef,
    referrer: Referrer<'_>,
    meshed: bool,
    what: &str,
    policed: &mut Vec<PolicedBackend<'w>>,
    backends: &mut Backends<'w>,
    cx: &ResolveContext<'w, '_>,
) -> Result<FoundCollector, Grounds> {
    if meshed {
        let why = format!("{what} is not supported on a Gateway that sends traffic to a mesh");
        return Err((Reason::UnsupportedValue, why));
    }
    let (resolved, http) = backends.collector(referrer, collector, cx);
    let ResolvedRef {
        policed: backend_policed,
        target,
    } = resolved;
    policed.extend(backend_policed);
    match target? {
        BackendTarget::Backend(backend) => Ok(FoundCollector { backend, http }),
        BackendTarget::Refused(why) => Err((Reason::Invalid, why)),
    }
}

impl<'w> CheckedGateway<'w> {
    pub(super) fn collect(
        &mut self,
        cx: &ResolveContext<'w, '_>,
        references: &mut ReferencedObjects<'_, 'w, '_>,
    ) {
        let meshed = self.mesh.is_some();
        let traced = TracedGateway {
            metadata: self.metadata,
            merged: self.merged.as_ref(),
            meshed,
            configured: self.settings.tracing.as_ref(),
        };
        let (policies, backends) = (references.telemetry_policies, &mut *references.backends);
        let (tracing, fault) = tracing::check(&traced, policies, backends, cx);
        let (log, faults) = log_output::check(&self.settings.log, meshed, backends, cx);
        self.tracing = tracing;
        self.log = log;
        self.not_understood.extend(fault);
        self.not_understood.extend(faults);
    }
}
