//! Reads a TrafficPolicy. If a protective setting is invalid, requests to the policy's targets are
//! rejected. An invalid tuning setting is ignored.

use std::sync::Arc;

use super::filters::OfPolicy;
use super::of_kind::CheckedPolicy;
use super::read::{read_limits, read_retry, read_timeouts};
use super::read_filters::{
    read_bandwidth, read_body, read_compression, read_fault, read_headers, read_pages,
};
use super::service_limits::Services;
use crate::backends::{Backends, Traffic};
use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use crate::policies::targets::PolicyTargets;
use sesame_kinds::api::{BackendObjectRef, TrafficPolicy, TrafficPolicySpec};
use sesame_kinds::status::Reason;
use sesame_kinds::world::Kind;

pub(super) fn check<'w>(
    object: &'w TrafficPolicy,
    targets: &mut PolicyTargets<'w>,
    backends: &mut Backends<'w>,
    cx: &mut ResolveContext<'w, '_>,
) -> CheckedPolicy<'w> {
    let (metadata, spec) = (&object.metadata, &object.spec);
    let mut checked = CheckedPolicy::new(metadata, &spec.target_refs, targets, cx);
    let name: Arc<str> = Kind::TrafficPolicy.named(metadata.key()).to_string().into();
    let referrer = Referrer::new(Kind::TrafficPolicy, &metadata.namespace);
    checked.protect(spec, &name, &mut |reference| {
        let found = backends.resolve_service(referrer, reference, Traffic::Grpc, cx);
        found.map_err(|(_, why)| why)
    });
    checked.tune(spec, &name);
    checked
}

impl CheckedPolicy<'_> {
    fn protect(
        &mut self,
        spec: &TrafficPolicySpec,
        policy: &Arc<str>,
        resolve: &mut dyn FnMut(&BackendObjectRef) -> Result<String, String>,
    ) {
        let TrafficPolicySpec {
            target_refs: _,
            rate_limits,
            request_body,
            bandwidth,
            headers,
            // Tuning settings.
            timeouts: _,
            retry: _,
            compression: _,
            error_pages: _,
            grpc_web: _,
            fault: _,
        } = spec;
        let at_spec = |why: String| format!("spec.{why}");
        let mut services = Services {
            policy: self.metadata.key().to_string(),
            resolve,
            ignored: Vec::new(),
        };
        let limits = read_limits(policy, rate_limits, &mut services).map_err(at_spec);
        for why in services.ignored {
            self.accepted.refuse(Reason::Invalid, at_spec(why));
        }
        self.limits = self.protecting(limits).unwrap_or_default();
        let body = request_body.as_ref().map(read_body).transpose();
        let body = self.protecting(body.map_err(at_spec)).flatten();
        let bandwidth = bandwidth.as_ref().map(read_bandwidth).transpose();
        let bandwidth = self.protecting(bandwidth.map_err(at_spec)).flatten();
        let [request, response] = bandwidth.unwrap_or_default();
        let headers = headers.as_ref().map(read_headers).transpose();
        let headers = self.protecting(headers.map_err(at_spec)).flatten();
        let filters = &mut self.settings.filters;
        filters.max_body_bytes = OfPolicy::new(policy, body);
        filters.request_bandwidth = OfPolicy::new(policy, request);
        filters.response_bandwidth = OfPolicy::new(policy, response);
        filters.headers = OfPolicy::new(policy, headers);
    }

    fn tune(&mut self, spec: &TrafficPolicySpec, policy: &Arc<str>) {
        let TrafficPolicySpec {
            target_refs: _,
            timeouts,
            retry,
            compression,
            error_pages,
            grpc_web,
            fault,
            // Protective settings.
            rate_limits: _,
            request_body: _,
            bandwidth: _,
            headers: _,
        } = spec;
        let (accepted, settings) = (&mut self.accepted, &mut self.settings);
        let filters = &mut settings.filters;
        let mut tuned = |why: Result<(), String>| {
            accepted.refuse_if(Reason::Invalid, why.err().map(|why| format!("spec.{why}")));
        };
        let timeouts = timeouts.as_ref().map(read_timeouts).transpose();
        tuned(timeouts.map(|read| settings.timeouts = read));
        let retry = retry.as_ref().map(read_retry).transpose();
        tuned(retry.map(|read| settings.retry = read));
        let compression = compression.as_ref().map(read_compression).transpose();
        tuned(compression.map(|read| filters.compression = OfPolicy::new(policy, read)));
        let pages = error_pages.as_deref().map(read_pages).transpose();
        tuned(pages.map(|read| filters.error_pages = OfPolicy::new(policy, read)));
        let fault = fault.as_ref().map(read_fault).transpose();
        tuned(fault.map(|read| filters.fault = OfPolicy::new(policy, read)));
        filters.grpc_web = OfPolicy::new(policy, *grpc_web);
    }
}
