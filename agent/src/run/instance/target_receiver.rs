//! What one Gateway is to serve, as its instance sees it: the newest, straight from the engine.

use std::sync::Arc;

use sesame_gateway_api::api::NamespacedName;
use tokio::sync::watch;

use crate::run::engine::Known;
use crate::run::target::Target;

/// The newest configuration of one Gateway.
pub(super) struct TargetReceiver {
    gateway: NamespacedName,
    known: watch::Receiver<Known>,
    /// What was handed over last.
    current: Arc<Target>,
}

/// The engine has ended.
pub(super) struct Ended;

impl TargetReceiver {
    /// Starts with `first`, as if it had been handed over.
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

    /// The newest; what follows is another.
    pub(super) fn newest(&mut self) -> Arc<Target> {
        if let Some(other) = self.other() {
            self.current = other;
        }
        Arc::clone(&self.current)
    }

    /// Waits until there is another one than was handed over last, and hands it over. A Gateway that is gone keeps
    /// its last: the conductor ends it. May be cancelled.
    pub(super) async fn changed(&mut self) -> Result<Arc<Target>, Ended> {
        loop {
            self.known.changed().await.map_err(|_| Ended)?;
            if let Some(other) = self.other() {
                self.current = Arc::clone(&other);
                return Ok(other);
            }
        }
    }

    /// Whether there is another one than was handed over last.
    pub(super) fn has_newer(&self) -> bool {
        self.other().is_some()
    }

    /// Whether the source has no Gateway left, which is held.
    pub(super) fn is_withdrawn(&self) -> bool {
        let known = self.known.borrow();
        known.withdrawn && known.held(&self.gateway).is_some()
    }

    fn other(&self) -> Option<Arc<Target>> {
        let known = self.known.borrow();
        let newest = known.gateways.get(&self.gateway)?;
        (!Arc::ptr_eq(newest, &self.current)).then(|| Arc::clone(newest))
    }
}
