//! Determines which files on disk the running Envoy has accepted.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_render::Resource;

use super::Applier;
use super::on_disk::resources_mut;
use sesame_envoy::Admin;
use sesame_render::xds::response;
use sesame_render::xds::{Subscription, XdsKind};

impl Applier {
    pub(super) async fn confirm(&mut self, envoy: &Admin) {
        let Ok(versions) = envoy.version_texts().await else {
            // The transaction that follows reports this error.
            return;
        };
        let mut unconfirmed = BTreeSet::new();
        let mut check = |subscription: Subscription, resources: &[Resource]| {
            let version = response::version(subscription.kind, resources);
            let reported = versions.of(&subscription, &version);
            if reported.is_some_and(|reported| reported != version) {
                unconfirmed.insert(subscription);
            }
        };
        for kind in XdsKind::LISTS {
            check(Subscription::new(kind, ""), self.on_disk.resources(kind));
        }
        for kind in XdsKind::LEAVES {
            for leaf in self.on_disk.resources(kind) {
                let subscription = Subscription::new(kind, &leaf.name);
                check(subscription, std::slice::from_ref(leaf));
            }
        }
        self.on_disk.unconfirmed = unconfirmed;
        // If Envoy has never accepted any version of a list, it uses at most parts of the list on
        // disk. It would reject any union that contains this list, so treat the list as empty.
        for kind in XdsKind::LISTS {
            if versions.of(&Subscription::new(kind, ""), "") == Some("") {
                *resources_mut(&mut self.on_disk.content, kind) = Arc::default();
            }
        }
        self.confirmed = true;
    }
}
