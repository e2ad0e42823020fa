//! Follows the observations of all instances on behalf of one task. Must never keep a stopped
//! instance alive.

use sesame_kinds::api::NamespacedName;
use tokio::sync::watch;

use super::observed::{AllObserved, Observed};

pub(super) struct FollowedInstances {
    all: watch::Receiver<AllObserved>,
    followed: AllObserved,
}

impl FollowedInstances {
    pub(super) fn new(all: watch::Receiver<AllObserved>) -> Self {
        Self {
            all,
            followed: AllObserved::new(),
        }
    }

    /// Observations of a new instance count as unseen.
    pub(super) fn follow(&mut self) {
        let all = self.all.borrow_and_update();
        self.followed.retain(|name, followed| {
            all.get(name)
                .is_some_and(|observed| observed.same_channel(followed))
        });
        for (name, observed) in all.iter() {
            if !self.followed.contains_key(name) {
                self.followed.insert(name.clone(), observed.clone());
            }
        }
    }

    pub(super) async fn changed(&mut self) {
        let observed = self.followed.values_mut().map(|observed| {
            Box::pin(async {
                if observed.changed().await.is_err() {
                    // The instance has stopped, so wait for the list of instances to change.
                    std::future::pending::<()>().await;
                }
            })
        });
        let any: Vec<_> = observed.collect();
        let any = async {
            if any.is_empty() {
                std::future::pending::<()>().await;
            }
            futures::future::select_all(any).await;
        };
        tokio::select! {
            () = any => {}
            _ = self.all.changed() => {}
        }
    }

    #[cfg_attr(
        not(feature = "cluster"),
        expect(dead_code, reason = "only used for reports to a cluster")
    )]
    pub(super) fn newest(&self, name: &NamespacedName) -> Option<watch::Ref<'_, Observed>> {
        self.followed.get(name).map(watch::Receiver::borrow)
    }

    /// Marks the returned observations as seen.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(dead_code, reason = "only used for reports to a cluster")
    )]
    pub(super) fn read_all(&mut self) -> impl Iterator<Item = (&NamespacedName, Observed)> {
        let followed = self.followed.iter_mut();
        followed.map(|(name, observed)| (name, observed.borrow_and_update().clone()))
    }
}
