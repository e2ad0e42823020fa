//! Reads an AccessPolicy that only reports. It never rejects a request, and changes no headers.
//! Errors are therefore only reported, too, except for unknown fields, whose meaning is unknown.

use std::sync::Arc;

use sesame_proto::schema::ReportedChecks;

use super::access::{self, AccessCheck};
use super::connections::ConnectionChecks;
use super::filters::{FilterSettings, parts};
use super::jwt::TokenCheck;
use super::of_kind::CheckedPolicy;
use crate::backends::Backends;
use crate::context::ResolveContext;
use crate::policies::targets::PolicyTargets;
use sesame_kinds::api::{AccessMode, AccessPart, AccessPolicy, AccessPolicySpec};
use sesame_kinds::status::Reason;
use sesame_kinds::world::Kind;

/// Returns true if the policy only reports.
pub(super) fn reports(mode: Option<&AccessMode>) -> Result<bool, String> {
    match mode {
        None | Some(AccessMode::Enforce) => Ok(false),
        Some(AccessMode::Report) => Ok(true),
        Some(AccessMode::Other(other)) => {
            let known = AccessMode::WORDS.join(" or ");
            Err(format!(".mode {other:?} is unknown; expected {known}"))
        }
    }
}

pub(super) fn check<'w>(
    object: &'w AccessPolicy,
    targets: &mut PolicyTargets<'w>,
    backends: &mut Backends<'w>,
    cx: &mut ResolveContext<'w, '_>,
) -> CheckedPolicy<'w> {
    let (metadata, spec) = (&object.metadata, &object.spec);
    let mut checked = CheckedPolicy::new(metadata, &spec.target_refs, targets, cx);
    checked.reports = true;
    let policy = Kind::AccessPolicy.named(metadata.key()).to_string();
    if checked.settings.refuses {
        checked.settings.connections = ConnectionChecks::of_policy(&policy, None);
        return checked;
    }
    let mut enforced_only = AccessPart::ENFORCED_ONLY.to_vec();
    enforced_only.retain(|part| spec.has(*part));
    for part in &enforced_only {
        let why = format!(
            "spec.{}: mode Report does not support this part, so it neither rejects nor reports \
             requests",
            part.as_str()
        );
        checked.accepted.refuse(Reason::Invalid, why);
    }
    let observed = observed(spec);
    if !enforced_only.is_empty() && !AccessPart::ALL.into_iter().any(|it| observed.has(it)) {
        return checked;
    }
    let namespace = &metadata.namespace;
    let read = access::read_shared(&policy, namespace, &observed, cx);
    let read = read.and_then(|shared| {
        access::read_requests(&policy, namespace, &observed, shared, backends, cx)
    });
    match read {
        Ok(check) => {
            let reported = &mut checked.settings.filters.reported;
            reported.insert(policy.into(), Arc::new(only_reporting(check)));
        }
        Err(why) => {
            let why = format!("spec{why}; the policy reports nothing");
            checked.accepted.refuse(Reason::Invalid, why);
        }
    }
    checked
}

/// Returns the parts that can be observed without rejecting requests.
fn observed(spec: &AccessPolicySpec) -> AccessPolicySpec {
    AccessPolicySpec {
        basic_auth: None,
        api_key_auth: None,
        csrf: None,
        oidc: None,
        ext_auth: None,
        ..spec.clone()
    }
}

fn only_reporting(mut check: AccessCheck) -> AccessCheck {
    if let Some(tokens) = &mut check.tokens {
        tokens.policy.report_only = true;
        tokens.claim_headers.clear();
        tokens.token_headers.clear();
    }
    check
}

impl FilterSettings {
    /// Excludes parts from which the route is exempt.
    pub(super) fn reported_checks(&self) -> Option<ReportedChecks> {
        let checks = ReportedChecks {
            address_filters: parts(&self.reported, |check| check.addresses.clone()),
            tokens: (self.reported_tokens()).map(|it| it.name.clone()).collect(),
            authorizations: parts(&self.reported, |check| check.authorization.clone()),
        };
        (checks != ReportedChecks::default()).then_some(checks)
    }

    /// Returns warnings that do not prevent checks.
    pub(super) fn notes(&self) -> impl Iterator<Item = &str> {
        let checks = self.token_checks().chain(self.reported_tokens());
        let logins = self.access.values().filter_map(|it| it.login.as_ref());
        let notes = checks.flat_map(|it| &it.notes);
        notes
            .chain(logins.filter_map(|it| it.note.as_ref()))
            .map(String::as_str)
    }

    pub(super) fn reported_tokens(&self) -> impl Iterator<Item = &TokenCheck> {
        let checks = self.reported.values();
        checks.filter_map(|it| it.tokens.as_ref())
    }
}
