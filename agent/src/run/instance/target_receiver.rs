//! The newest target of one Gateway, straight from the engine to its instance.

use std::sync::Arc;

use sesame_gateway_api::api::NamespacedName;
use tokio::sync::watch;

use crate::run::engine::Known;
use crate::run::target::Target;

/// Receives the targets of one Gateway.
pub(super) struct TargetReceiver {
    gateway: NamespacedName,
    known: watch::Receiver<Known>,
    /// Target that was returned last.
    current: Arc<Target>,
}

impl TargetReceiver {
    /// Starts with `current`, as if it had been returned already.
    pub(super) fn new(
        gateway: NamespacedName,
        known: watch::Receiver<Known>,
        current: Arc<Target>,
    ) -> Self {
        Self {
            gateway,
            known,
            current,
        }
    }

    /// Waits for a target that is newer than the one returned last. There is none of a Gateway that is gone, whose
    /// instance is ended from outside. Returns none when the engine has ended. May be cancelled.
    pub(super) async fn changed(&mut self) -> Option<Arc<Target>> {
        loop {
            self.known.changed().await.ok()?;
            if let Some(newer) = self.newer() {
                self.current = Arc::clone(&newer);
                return Some(newer);
            }
        }
    }

    /// Returns whether there is a target that is newer than the one returned last.
    pub(super) fn has_newer(&self) -> bool {
        self.newer().is_some()
    }

    /// Returns whether the source has lost this Gateway, and its withdrawal is held.
    pub(super) fn is_withdrawn(&self) -> bool {
        let known = self.known.borrow();
        known.withdrawn && known.held(&self.gateway).is_some()
    }

    fn newer(&self) -> Option<Arc<Target>> {
        let known = self.known.borrow();
        let newest = known.gateways.get(&self.gateway)?;
        (!Arc::ptr_eq(newest, &self.current)).then(|| Arc::clone(newest))
    }
}
