//! Collects errors and warnings for the statuses of HTTPProxies.

use std::collections::BTreeMap;

use super::rules::RouteFault;
use crate::api::NamespacedName;
use crate::status::ProxyDetail;

/// Contour's type and reason for an error or warning.
pub(super) type DetailCode = (&'static str, &'static str);

const MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Details(BTreeMap<NamespacedName, Vec<ProxyDetail>>);

impl Details {
    pub(super) fn error(
        &mut self,
        proxy: &NamespacedName,
        code: DetailCode,
        message: impl Into<String>,
    ) {
        self.add(proxy, false, code, message.into());
    }

    pub(super) fn warn(
        &mut self,
        proxy: &NamespacedName,
        code: DetailCode,
        message: impl Into<String>,
    ) {
        self.add(proxy, true, code, message.into());
    }

    pub(super) fn of_route(
        &mut self,
        proxy: &NamespacedName,
        index: usize,
        (errors, warnings): (Vec<RouteFault>, Vec<RouteFault>),
    ) {
        for (code, why) in errors {
            self.error(proxy, code, format!("routes[{index}]: {why}"));
        }
        for (code, why) in warnings {
            self.warn(proxy, code, format!("routes[{index}]: {why}"));
        }
    }

    fn add(&mut self, proxy: &NamespacedName, warning: bool, code: DetailCode, message: String) {
        let (type_, reason) = code;
        let detail = ProxyDetail {
            warning,
            type_,
            reason,
            message,
        };
        let all = self.0.entry(proxy.clone()).or_default();
        if all.len() < MAX && !all.contains(&detail) {
            all.push(detail);
        }
    }

    /// Returns true if the HTTPProxy has an error that would make Contour serve none of its routes.
    pub(super) fn withdraws(&self, proxy: &NamespacedName) -> bool {
        let errors = self.0.get(proxy).into_iter().flatten();
        errors
            .filter(|it| !it.warning && it.type_ != "IncludeError")
            .any(|it| it.reason != "ServiceUnresolvedReference")
    }

    pub(super) fn remove(&mut self, proxy: &NamespacedName) -> Vec<ProxyDetail> {
        self.0.remove(proxy).unwrap_or_default()
    }
}
