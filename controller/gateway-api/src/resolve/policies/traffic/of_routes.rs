//! The filters that apply to a route, and the access checks from which it is exempt.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::schema::{ExternalAuth, HeaderModifier, RequestFilters};

use super::access::AccessCheck;
use super::filters::{FilterSettings, leave_to_rule, sorted};
use crate::api::AccessPart;

impl FilterSettings {
    /// Returns `None` if the listener's filters, `self`, apply unchanged. `changed` contains the
    /// rule's changes to response headers.
    pub(crate) fn of_route(
        &self,
        own: Option<&Self>,
        changed: Option<&HeaderModifier>,
        grpc: bool,
        route: &str,
        reserved_headers: Option<&BTreeSet<String>>,
    ) -> Option<Box<RequestFilters>> {
        let exempted = self.is_exempt(route);
        let is_stream = grpc && self.max_body_bytes.is_some();
        let strips = reserved_headers.is_some_and(|names| {
            let listener_headers: BTreeSet<&str> = self.reserved_headers().collect();
            names
                .iter()
                .any(|name| !listener_headers.contains(name.as_str()))
        });
        if own.is_none() && !strips && !is_stream && !exempted && !self.changes_same(changed) {
            return None;
        }
        let mut settings = own.cloned().unwrap_or_default();
        settings.add(self);
        // A policy's headers stay reserved even if the route is exempt from the policy.
        let reserved = settings.reserved_headers();
        let reserved = reserved.chain(reserved_headers.into_iter().flatten().map(String::as_str));
        let reserved = sorted(reserved);
        let exempt_from = settings.exempt_from(route);
        settings.drop_exempt(route);
        let filters = settings.to_schema(changed).unwrap_or_default();
        Some(Box::new(RequestFilters {
            reserved_headers: reserved,
            exempt_from,
            // gRPC streams might never end, so they are not buffered.
            max_body_bytes: if grpc { 0 } else { filters.max_body_bytes },
            ..filters
        }))
    }

    /// Returns the settings for a rule on this listener, or `None` if the listener's settings apply
    /// unchanged.
    pub(crate) fn of_rule(&self, own: Option<&Self>, route: &str) -> Option<Self> {
        if own.is_none() && !self.is_exempt(route) {
            return None;
        }
        let mut settings = own.cloned().unwrap_or_default();
        settings.add(self);
        settings.drop_exempt(route);
        Some(settings)
    }

    fn is_exempt(&self, route: &str) -> bool {
        let mut exempt = self.access.values().flat_map(|it| it.exempts(route));
        exempt.next().is_some()
    }

    fn drop_exempt(&mut self, route: &str) {
        for check in self.access.values_mut() {
            if check.exempts(route).next().is_some() {
                *check = Arc::new(check.of_route(route));
            }
        }
    }

    pub(crate) fn external_auths(&self, own: Option<&Self>, route: &str) -> Vec<ExternalAuth> {
        let own = own.into_iter().flat_map(|it| &it.access);
        let all = self.access.iter().chain(own);
        let asking: BTreeMap<&Arc<str>, &Arc<AccessCheck>> =
            all.filter(|(_, it)| it.external_auth.is_some()).collect();
        let is_exempt = |check: &AccessCheck| {
            let mut parts = check.exempts(route);
            parts.any(|part| part == AccessPart::ExtAuth)
        };
        let asking = asking.into_values().filter(|it| !is_exempt(it));
        asking.filter_map(|it| it.external_auth.clone()).collect()
    }

    fn exempt_from(&self, route: &str) -> Vec<String> {
        let all = self.access.iter().flat_map(|(policy, check)| {
            let parts = check.exempts(route).filter(|part| check.has(*part));
            parts.map(move |part| format!("{policy}/{}", part.as_str()))
        });
        let all: BTreeSet<String> = all.collect();
        all.into_iter().collect()
    }

    fn changes_same(&self, rule: Option<&HeaderModifier>) -> bool {
        let headers = self.headers.as_ref();
        let changes = headers.and_then(|it| it.value.response.as_ref());
        let (Some(changes), Some(rule)) = (changes, rule) else {
            return false;
        };
        let mut left = changes.clone();
        leave_to_rule(&mut left, rule);
        left != *changes
    }
}
