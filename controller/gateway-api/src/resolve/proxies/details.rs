//! Collects errors and warnings for the statuses of HTTPProxies.

use std::collections::BTreeMap;

use super::rules::RouteFault;
use crate::api::NamespacedName;
use crate::status::ProxyDetail;

/// Contour's type and reason for an error or warning.
pub(super) type Words = (&'static str, &'static str);

const MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Details(BTreeMap<NamespacedName, Vec<ProxyDetail>>);

impl Details {
    pub(super) fn error(&mut self, of: &NamespacedName, words: Words, message: impl Into<String>) {
        self.add(of, false, words, message.into());
    }

    pub(super) fn warn(&mut self, of: &NamespacedName, words: Words, message: impl Into<String>) {
        self.add(of, true, words, message.into());
    }

    pub(super) fn of_route(
        &mut self,
        of: &NamespacedName,
        index: usize,
        (errors, warnings): (Vec<RouteFault>, Vec<RouteFault>),
    ) {
        for (words, why) in errors {
            self.error(of, words, format!("routes[{index}]: {why}"));
        }
        for (words, why) in warnings {
            self.warn(of, words, format!("routes[{index}]: {why}"));
        }
    }

    fn add(&mut self, of: &NamespacedName, warning: bool, words: Words, message: String) {
        let (type_, reason) = words;
        let detail = ProxyDetail {
            warning,
            type_,
            reason,
            message,
        };
        let all = self.0.entry(of.clone()).or_default();
        if all.len() < MAX && !all.contains(&detail) {
            all.push(detail);
        }
    }

    /// Returns true if the HTTPProxy has an error that would make Contour serve none of its routes.
    pub(super) fn withdraws(&self, of: &NamespacedName) -> bool {
        let errors = self.0.get(of).into_iter().flatten();
        errors
            .filter(|it| !it.warning && it.type_ != "IncludeError")
            .any(|it| it.reason != "ServiceUnresolvedReference")
    }

    pub(super) fn take(&mut self, of: &NamespacedName) -> Vec<ProxyDetail> {
        self.0.remove(of).unwrap_or_default()
    }
}
