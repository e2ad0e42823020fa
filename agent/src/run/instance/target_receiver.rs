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

/// Error of a receiver whose engine has ended.
pub(super) struct EngineGone;

impl TargetReceiver {
    /// Starts with `first`, as if it had been returned already.
    pub(super) fn new(
        gateway: NamespacedName,
        known: watch::Receiver<Known>,
        first: Arc<Target>,
    ) -> Self {
        Self {
            gateway,
            known,
            current: first,
        }
    }

    /// Returns the newest target; [`Self::changed`] waits for a newer one.
    pub(super) fn newest(&mut self) -> Arc<Target> {
        if let Some(newer) = self.newer() {
            self.current = newer;
        }
        Arc::clone(&self.current)
    }

    /// Waits for a target that is newer than the one returned last. There is none of a Gateway that is gone, whose
    /// instance is ended from outside. May be cancelled.
    pub(super) async fn changed(&mut self) -> Result<Arc<Target>, EngineGone> {
        loop {
            self.known.changed().await.map_err(|_| EngineGone)?;
            if let Some(newer) = self.newer() {
                self.current = Arc::clone(&newer);
                return Ok(newer);
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
