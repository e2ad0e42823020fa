//! Access checks for connections and datagrams of layer 4 routes. Only address filters apply.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_proto::refusal;
use sesame_proto::schema::AddressFilter;

use super::access::AccessCheck;
use sesame_kinds::api::{AccessPart, AccessPolicySpec, PolicyTargetRef, UnknownFields};
use sesame_kinds::world::{Kind, ObjectKey};

/// Returns the fields that the policy sets and that apply only to HTTP. Includes unreadable fields.
pub(super) fn http_only(spec: &AccessPolicySpec, unknown: &UnknownFields) -> Vec<&'static str> {
    let is_unreadable = |name: &str| {
        let mut unknown = unknown.iter();
        unknown.any(|field| field.path.fields().nth(1) == Some(name))
    };
    let parts = AccessPart::HTTP_ONLY.into_iter();
    let parts = parts.filter(|part| spec.has(*part) || is_unreadable(part.as_str()));
    parts.map(AccessPart::as_str).collect()
}

/// Describes what happens to the traffic of an invalid policy's targets.
pub(super) fn refused_traffic(targets: &[PolicyTargetRef]) -> String {
    let l4_kinds = [Kind::TlsRoute, Kind::TcpRoute, Kind::UdpRoute].map(Kind::as_str);
    let l4_targets = targets.iter();
    let l4_targets = l4_targets.filter(|it| l4_kinds.contains(&it.kind.as_str()));
    let requests = format!("requests to the targets get {}", refusal::HTTP);
    match l4_targets.count() {
        0 => requests,
        all if all == targets.len() => "the targets get no traffic".to_owned(),
        _ => format!("{requests}, and layer 4 routes get no traffic"),
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ConnectionChecks {
    /// Keyed by policy. `None` if the policy is invalid, so the route must not serve any traffic.
    checks: BTreeMap<Arc<str>, Option<Arc<AccessCheck>>>,
}

/// The checks of one layer 4 route on one listener, as in the schema.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RouteChecks {
    pub(crate) address_filters: Vec<AddressFilter>,
    pub(crate) exempt_from: Vec<String>,
    pub(crate) refused_by: Vec<String>,
}

impl ConnectionChecks {
    /// `check` is `None` if the policy is invalid.
    pub(super) fn of_policy(policy: &str, check: Option<AccessCheck>) -> Self {
        let applies = check.as_ref().is_none_or(|it| it.addresses.is_some());
        let checks = applies.then(|| (policy.into(), check.map(Arc::new)));
        Self {
            checks: checks.into_iter().collect(),
        }
    }

    pub(super) fn refuse(&mut self, policy: &ObjectKey) {
        self.checks.insert(policy.to_string().into(), None);
    }

    pub(super) fn refuses(&self) -> bool {
        self.checks.values().any(Option::is_none)
    }

    pub(super) fn add(&mut self, wider: &Self) {
        for (policy, check) in &wider.checks {
            let own = self.checks.entry(Arc::clone(policy));
            let own = own.or_insert_with(|| check.clone());
            if check.is_none() {
                *own = None;
            }
        }
    }

    /// Returns the checks of a route with these settings on a listener with `wider` settings.
    pub(crate) fn of_route(&self, wider: &Self, route: &str) -> RouteChecks {
        let mut all = self.clone();
        all.add(wider);
        let mut found = RouteChecks::default();
        for (policy, check) in all.checks {
            let Some(check) = check else {
                found.refused_by.push(policy.to_string());
                continue;
            };
            let mut exempt = check.exempts(route);
            if exempt.any(|part| part == AccessPart::IpFilter) {
                let part = AccessPart::IpFilter.as_str();
                found.exempt_from.push(format!("{policy}/{part}"));
            } else {
                found.address_filters.extend(check.addresses.clone());
            }
        }
        found
    }
}
