//! Filters of RouteFilters. Thousands of rules may use one.

use std::collections::HashMap;
use std::sync::Arc;

use sesame_proto::descriptor_sets::Services;
use sesame_proto::digest::sha256;
use sesame_proto::schema::SharedFilter;

use crate::syntax::parsed::Parsed;

/// Never affects results.
#[derive(Debug, Default)]
pub(crate) struct FilterCache {
    /// Services of descriptor sets, by digest.
    descriptor_sets: Parsed<Arc<Services>>,
    /// Filters that this resolution has read, by name.
    filters: HashMap<String, Result<Arc<SharedFilter>, String>>,
}

impl FilterCache {
    /// Returns the services that a descriptor set defines.
    pub(crate) fn services(&mut self, set: &[u8]) -> Result<Arc<Services>, String> {
        self.descriptor_sets.get(&sha256(set), |_| {
            let services = Services::read(set).map(Arc::new);
            services.map_err(|why| why.to_string())
        })
    }

    /// Returns the filter of this name if the resolution has read it.
    pub(crate) fn known(&self, name: &str) -> Option<Result<Arc<SharedFilter>, String>> {
        self.filters.get(name).cloned()
    }

    /// Lets other rules use the filter.
    pub(crate) fn share(
        &mut self,
        name: String,
        filter: Result<SharedFilter, String>,
    ) -> Result<Arc<SharedFilter>, String> {
        let filter = filter.map(Arc::new);
        self.filters.entry(name).or_insert(filter).clone()
    }

    /// Evicts everything that a later resolution must read again.
    pub(crate) fn finish(&mut self) {
        self.descriptor_sets.finish();
        self.filters.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_share_filters_within_one_resolution() {
        let filter = |name: &str| SharedFilter {
            name: name.to_owned(),
            kind: None,
        };
        let mut cache = FilterCache::default();
        let first = cache.share("a".to_owned(), Ok(filter("a"))).unwrap();
        let second = cache.share("a".to_owned(), Ok(filter("a"))).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let known = cache.known("a").unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &known));
        // The next resolution reads changed filters.
        cache.finish();
        assert_eq!(cache.known("a"), None);
    }
}
