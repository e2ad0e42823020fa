//! Collectors of what Gateways tell: of spans, and of lines of access logs.
//!
//! It must never send anything to what the one that refers to it may not refer to.

use crate::api::CollectorRef;
use crate::resolve::backends::{BackendTarget, Backends, PolicedBackend, ResolvedRef};
use crate::resolve::context::ResolveContext;
use crate::resolve::context::grants::Referrer;
use crate::status::{Grounds, Reason};

/// Collector as a snapshot has it.
pub(super) struct FoundCollector {
    /// Name of its Backend.
    pub(super) backend: String,
    /// True if it is spoken to by HTTP, and not by gRPC.
    pub(super) http: bool,
}

/// Looks up a collector, and notes it where objects have it in their statuses. `what` goes to it, if the Gateway does not send to a
/// mesh.
pub(super) fn find<'w>(
    collector: &CollectorRef,
    referrer: Referrer<'_>,
    meshed: bool,
    what: &str,
    policed: &mut Vec<PolicedBackend<'w>>,
    backends: &mut Backends<'w>,
    cx: &ResolveContext<'w, '_>,
) -> Result<FoundCollector, Grounds> {
    if meshed {
        let why = format!("{what} is not supported on a Gateway that sends to a mesh");
        return Err((Reason::UnsupportedValue, why));
    }
    let (resolved, http) = backends.collector(referrer, collector, cx);
    let ResolvedRef {
        policed: told,
        target,
    } = resolved;
    policed.extend(told);
    match target? {
        BackendTarget::Backend(backend) => Ok(FoundCollector { backend, http }),
        BackendTarget::Refused(why) => Err((Reason::Invalid, why)),
    }
}
