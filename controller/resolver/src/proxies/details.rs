//! Collects errors and warnings for the statuses of HTTPProxies.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::RouteFault;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::ProxyDetail;

/// Contour's type and reason for an error or warning.
pub(super) type DetailCode = (&'static str, &'static str);

const MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Details {
    all: BTreeMap<NamespacedName, Vec<ProxyDetail>>,
    /// HTTPProxies with an error in the current visit that would make Contour serve none of their
    /// routes. Errors from other roots do not count: they can belong to other namespaces.
    withdrawing: BTreeSet<NamespacedName>,
}

impl Details {
    pub(super) fn error(
        &mut self,
        proxy: &NamespacedName,
        code: DetailCode,
        message: impl Into<String>,
    ) {
        let (type_, reason) = code;
        if type_ != "IncludeError" && reason != "ServiceUnresolvedReference" {
            self.withdraw(proxy);
        }
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
        let all = self.all.entry(proxy.clone()).or_default();
        if all.len() < MAX && !all.contains(&detail) {
            all.push(detail);
        }
    }

    /// Returns the HTTPProxies that errors of the current root's includes withdraw, and forgets them.
    pub(super) fn end_root(&mut self) -> BTreeSet<NamespacedName> {
        std::mem::take(&mut self.withdrawing)
    }

    /// Forgets which HTTPProxies other roots' errors withdraw.
    pub(super) fn start_root(&mut self, withdrawing: BTreeSet<NamespacedName>) {
        self.withdrawing = withdrawing;
    }

    pub(super) fn withdraw(&mut self, proxy: &NamespacedName) {
        self.withdrawing.insert(proxy.clone());
    }

    /// Ends a visit of the HTTPProxy, and returns true if it withdraws the HTTPProxy's routes. As in
    /// Contour, another visit through another include may have no error.
    pub(super) fn take_withdrawal(&mut self, proxy: &NamespacedName) -> bool {
        self.withdrawing.remove(proxy)
    }

    pub(super) fn remove(&mut self, proxy: &NamespacedName) -> Vec<ProxyDetail> {
        self.all.remove(proxy).unwrap_or_default()
    }
}
