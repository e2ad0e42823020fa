//! Filters that a rule's RouteFilters define.

use std::sync::Arc;

use sesame_proto::schema::SharedFilter;

use super::filters::FilterSettings;
use crate::filters::injected::Injected;
use crate::filters::{OwnFilters, PartialMaintenance};

impl FilterSettings {
    /// Adds the rule's own filters. Returns `None` if nothing is set.
    pub(crate) fn with_own(mut self, own: OwnFilters) -> Option<Arc<Self>> {
        self.own = (own != OwnFilters::default()).then(|| Arc::new(own));
        (!self.is_empty()).then(|| Arc::new(self))
    }

    pub(super) fn injected(&self) -> Option<&Injected> {
        self.own.as_ref()?.injected.as_ref()
    }

    pub(super) fn transcoder(&self) -> Option<&Arc<SharedFilter>> {
        self.own.as_ref()?.transcoder.as_ref()
    }

    pub(super) fn shared_own(&self) -> impl Iterator<Item = &Arc<SharedFilter>> {
        let page = self.maintenance().map(|it| &it.page);
        self.transcoder().into_iter().chain(page)
    }

    pub(super) fn maintenance(&self) -> Option<&PartialMaintenance> {
        self.own.as_ref()?.maintenance.as_ref()
    }
}
