//! The filters that apply to a route, and the access checks from which it is exempt.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::schema::{AddressFilter, ExternalAuth, HeaderModifier, RequestFilters, SignIn};

use super::access::AccessCheck;
use super::filters::{FilterSettings, OfPolicy, leave_to_rule, sorted};
use sesame_kinds::api::AccessPart;

impl FilterSettings {
    pub(crate) fn of_addresses(filter: AddressFilter) -> Self {
        let name = filter.name.as_str().into();
        let check = AccessCheck {
            addresses: Some(filter),
            ..AccessCheck::default()
        };
        Self {
            access: BTreeMap::from([(name, Arc::new(check))]),
            ..Self::default()
        }
    }

    pub(crate) fn require(&mut self, object: &str, check: Arc<AccessCheck>) {
        self.access.insert(object.into(), check);
    }

    pub(crate) fn sign_in_at(&mut self, object: &str, page: SignIn) {
        self.sign_in = OfPolicy::new(&object.into(), Some(page));
    }

    pub(crate) fn limit_body(&mut self, object: &str, bytes: u64) {
        self.max_body_bytes = OfPolicy::new(&object.into(), Some(bytes));
    }

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

    /// `check` has the form `HTTPProxy/namespace/name/jwt`.
    pub(crate) fn exempt_itself(&mut self, check: String) {
        self.exempt_from.insert(check);
    }

    /// Describes the exempt routes.
    pub(super) fn exempt(&self) -> impl Iterator<Item = String> {
        let checks = self.access.values().chain(self.reported.values());
        let exempt = checks.flat_map(|it| &it.exempt);
        exempt.map(|(object, parts)| {
            if parts.len() == AccessPart::ALL.len() {
                return object.clone();
            }
            let parts: Vec<&str> = parts.iter().map(|it| it.as_str()).collect();
            format!("{object} from {}", parts.join(" and "))
        })
    }

    fn is_exempt(&self, route: &str) -> bool {
        let checks = self.access.values().chain(self.reported.values());
        let mut exempt = checks.flat_map(|it| it.exempts(route));
        exempt.next().is_some()
    }

    fn drop_exempt(&mut self, route: &str) {
        let reported = self.reported.values_mut();
        for check in self.access.values_mut().chain(reported) {
            if check.exempts(route).next().is_some() {
                *check = Arc::new(check.of_route(route));
            }
        }
    }

    /// Returns logins and authorization services, by policy.
    pub(crate) fn external_auths(&self, own: Option<&Self>, route: &str) -> Vec<ExternalAuth> {
        let own = own.into_iter().flat_map(|it| &it.access);
        let all: BTreeMap<&Arc<str>, &Arc<AccessCheck>> = self.access.iter().chain(own).collect();
        let asking = all.into_values().flat_map(|check| {
            let applies = |part| !check.exempts(route).any(|exempt| exempt == part);
            let login = check.login.as_ref().map(|login| &login.auth);
            let login = login.filter(|_| applies(AccessPart::Oidc));
            let service = check.external_auth.as_ref();
            let service = service.filter(|_| applies(AccessPart::ExtAuth));
            login.into_iter().chain(service)
        });
        asking.cloned().collect()
    }

    fn exempt_from(&self, route: &str) -> Vec<String> {
        let all = self.access.iter().flat_map(|(policy, check)| {
            let parts = check.exempts(route).filter(|part| check.has(*part));
            parts.map(move |part| format!("{policy}/{}", part.as_str()))
        });
        let all: BTreeSet<String> = all.chain(self.exempt_from.iter().cloned()).collect();
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
