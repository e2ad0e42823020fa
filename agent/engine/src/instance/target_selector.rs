//! Selects the target of a Gateway's Envoy: the source's newest target, unless that is held or the
//! Gateway was rolled back.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sesame_kinds::api::NamespacedName;
use tokio::sync::watch;

use super::drain_guard::{DrainGuard, HeldDrain};
use super::overlap::Overlap;
use super::removal_guard::RemovalGuard;
use super::rollout_guard::{self, StoredGenerations};
use crate::engine::SourceState;
use crate::target::Target;
use crate::{accepted, history, kept_keys};
use sesame_sources::seal::SealingKeys;
use sesame_sources::update::Staging;

pub(super) struct TargetSelector {
    gateway: NamespacedName,
    known: watch::Receiver<SourceState>,
    directory: PathBuf,
    sealing: Arc<SealingKeys>,
    guard: RemovalGuard,
    drains: DrainGuard,
    overlap: Overlap,
    /// The source's newest target.
    source: Arc<Target>,
    /// The chosen target, without retained certificates.
    chosen: Arc<Target>,
    /// `chosen` with retained certificates.
    selected: Arc<Target>,
    /// Generation that the Gateway is rolled back to.
    pinned: Option<u64>,
    /// Why the source's newest target is held.
    held: Option<String>,
    /// Why the newest revision waits for its rollout.
    waiting: Option<String>,
}

impl TargetSelector {
    pub(super) fn new(
        gateway: NamespacedName,
        known: watch::Receiver<SourceState>,
        source: Arc<Target>,
        directory: PathBuf,
        sealing: Arc<SealingKeys>,
        guard: RemovalGuard,
        overlap: Overlap,
    ) -> Self {
        let mut selector = Self {
            gateway,
            known,
            guard,
            drains: DrainGuard::default(),
            overlap,
            chosen: Arc::clone(&source),
            selected: Arc::clone(&source),
            source,
            pinned: None,
            held: None,
            waiting: None,
            directory,
            sealing,
        };
        if let Some(number) = history::pinned(&selector.directory) {
            if let Err(error) = selector.go_back(number) {
                tracing::error!("{error}");
            }
        } else if !selector.source.restored
            && let Ok(Some(before)) = accepted::load(&selector.directory, &selector.sealing)
        {
            selector.overlap.begin_with(&before.snapshot);
            let before = Arc::new(
                selector
                    .source
                    .with(&before, "the previously accepted configuration"),
            );
            selector.choose(&before);
        }
        selector.update_selected();
        selector
    }

    pub(super) fn selected(&self) -> &Arc<Target> {
        &self.selected
    }

    /// Returns true if Envoy's files may contain certificates whose trust has ended.
    pub(super) fn has_overlap(&self) -> bool {
        self.overlap.has_stored_state()
    }

    pub(super) fn held(&self) -> Option<String> {
        match self.pinned {
            Some(number) => Some(format!(
                "rolled back to generation {number}; run `sesame-agent resume` to follow the source again"
            )),
            None => self.held.clone(),
        }
    }

    /// Returns why the newest revision waits for its rollout.
    pub(super) fn waiting(&self) -> Option<String> {
        self.waiting.clone().filter(|_| self.pinned.is_none())
    }

    /// Returns true while a rollout compares this host with others.
    pub(super) fn is_compared(&self) -> bool {
        self.source.staging.is_compared()
    }

    /// Returns the digest of the revision that is being rolled out.
    pub(super) fn rollout(&self) -> Option<&str> {
        match self.source.staging {
            Staging::Released { .. } | Staging::Waits { .. } => Some(self.source.staged_digest()),
            Staging::Immediate | Staging::Undone(_) | Staging::Ring { .. } => None,
        }
    }

    pub(super) fn held_drain(&self) -> Option<&HeldDrain> {
        let held = self.drains.held();
        held.filter(|_| self.pinned.is_none() && self.held.is_none())
    }

    /// Returns the time at which [`TargetSelector::recheck`] must be called next.
    pub(super) fn next(&self) -> Option<Instant> {
        let drains = self.drains.next(Timestamp::now());
        let ring = rollout_guard::next(&self.source, Timestamp::now());
        let ring = ring.filter(|_| self.waiting.is_some());
        let guards = self.guard.next().into_iter().chain(drains).chain(ring);
        let guards = guards.filter(|_| self.pinned.is_none());
        guards.chain(self.overlap.next()).min()
    }

    /// Returns true if Envoy needs a different target, or `None` once the engine has stopped. Waits
    /// forever if the Gateway was removed. Cancel-safe.
    pub(super) async fn changed(&mut self) -> Option<bool> {
        loop {
            self.known.changed().await.ok()?;
            if let Some(newer) = self.newer() {
                self.source = newer;
                return Some(self.recheck());
            }
            let is_held = self.held_drain().is_some() || self.waiting.is_some();
            if is_held && self.is_needed_elsewhere(&self.chosen) {
                return Some(self.recheck());
            }
        }
    }

    pub(super) fn has_newer(&self) -> bool {
        self.newer().is_some()
    }

    fn newer(&self) -> Option<Arc<Target>> {
        let known = self.known.borrow();
        let newest = known.gateways.get(&self.gateway)?;
        (!Arc::ptr_eq(newest, &self.source)).then(|| Arc::clone(newest))
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        let known = self.known.borrow();
        known.withdrawn && known.held(&self.gateway).is_some()
    }

    /// Returns true if Envoy needs a different target.
    pub(super) fn recheck(&mut self) -> bool {
        self.follow_source();
        self.update_selected()
    }

    /// Returns true if Envoy needs a different target.
    fn update_selected(&mut self) -> bool {
        let retaining = self.overlap.with_retained(&self.chosen);
        let other = !Arc::ptr_eq(&retaining, &self.selected);
        self.selected = retaining;
        other
    }

    fn follow_source(&mut self) {
        if self.pinned.is_some() || Arc::ptr_eq(&self.source, &self.chosen) {
            return;
        }
        let served = Arc::clone(&self.chosen);
        self.choose(&served);
    }

    fn choose(&mut self, served: &Arc<Target>) {
        if let Some((kept, why)) = self.waits(served) {
            self.forget_held();
            self.waiting = Some(why);
            self.chosen = kept;
            return;
        }
        self.waiting = None;
        self.chosen = if self.is_let_through(Some(served)) {
            let held = self.drains.hold(served, &self.source, Timestamp::now());
            held.filter(|held| !self.is_needed_elsewhere(held))
                .unwrap_or_else(|| {
                    self.drains.open();
                    Arc::clone(&self.source)
                })
        } else {
            Arc::clone(served)
        };
    }

    /// Connections to a socket that two Envoys serve would be split between them.
    fn is_needed_elsewhere(&self, kept: &Target) -> bool {
        let known = self.known.borrow();
        let mut others = known.gateways.iter();
        others.any(|(name, other)| *name != self.gateway && kept.shares_socket_with(other))
    }

    /// Returns true if Envoy needs a different target.
    pub(super) fn hold_by(&mut self, most_removed: u8, pause: Duration) -> bool {
        if !self.guard.set(most_removed, pause) {
            return false;
        }
        self.recheck()
    }

    /// If `overlap` is `None`, the snapshot's overlap applies. Returns true if Envoy needs a
    /// different target.
    pub(super) fn overlap_by(&mut self, overlap: Option<Duration>) -> bool {
        self.overlap.set(overlap);
        self.update_selected()
    }

    /// Returns the reply to the operator.
    pub(super) fn accept(&mut self) -> &'static str {
        if self.pinned.is_some() {
            return "rolled back; run `sesame-agent resume` to follow the source again";
        }
        let waits = self.waiting.take().is_some();
        let is_held = [self.guard.open(), self.drains.open(), waits];
        if !is_held.contains(&true) {
            return "nothing is held";
        }
        self.held = None;
        self.chosen = Arc::clone(&self.source);
        self.update_selected();
        "applying the held revision"
    }

    /// The rollback persists across agent restarts. Returns the reply to the operator.
    pub(super) fn roll_back(&mut self, number: u64) -> Result<String, String> {
        self.go_back(number)?;
        self.update_selected();
        history::pin(&self.directory, Some(number))
            .map_err(|error| format!("cannot store the rollback for the next start: {error}"))?;
        Ok(format!(
            "returning to generation {number}; run `sesame-agent resume` to follow the source again"
        ))
    }

    /// Returns the reply to the operator.
    pub(super) fn resume(&mut self) -> Result<String, String> {
        history::pin(&self.directory, None).map_err(|error| error.to_string())?;
        if self.pinned.take().is_none() {
            return Ok("not rolled back; nothing to undo".to_owned());
        }
        self.forget_held();
        let reply = if let Some((kept, why)) = self.waits(&self.chosen) {
            let reply = format!("following the source again: {why}");
            (self.chosen, self.waiting) = (kept, Some(why));
            reply
        } else {
            self.chosen = Arc::clone(&self.source);
            "following the source again".to_owned()
        };
        self.update_selected();
        Ok(reply)
    }

    fn go_back(&mut self, number: u64) -> Result<(), String> {
        let resolved = history::load(&self.directory, number, &self.sealing);
        let mut resolved = resolved.map_err(|error| format!("{error:#}"))?;
        // Keys come from the source, because an old key may have been replaced after a leak.
        let present = self.source.encoded.keys();
        kept_keys::replace(&mut resolved.snapshot, &mut resolved.keys, present);
        let cause = format!("a rollback to generation {number}");
        self.chosen = Arc::new(self.source.with(&resolved, &cause));
        self.pinned = Some(number);
        self.forget_held();
        Ok(())
    }

    fn forget_held(&mut self) {
        self.guard.open();
        self.drains.open();
        (self.held, self.waiting) = (None, None);
    }

    /// Returns the target to serve while the newest revision waits for its rollout, with the
    /// reason.
    fn waits(&self, served: &Arc<Target>) -> Option<(Arc<Target>, String)> {
        let stored = StoredGenerations {
            directory: &self.directory,
            sealing: &self.sealing,
        };
        let held = rollout_guard::hold(served, &self.source, &stored, Timestamp::now())?;
        (!self.is_needed_elsewhere(&held.0)).then_some(held)
    }

    fn is_let_through(&mut self, served: Option<&Target>) -> bool {
        let size = |wanted: &Target| wanted.encoded.counts();
        let source = &self.source;
        let checked = self.guard.check(
            served.map(size),
            size(source),
            || source.revision().to_owned(),
            Instant::now(),
        );
        self.held = checked.err();
        self.held.is_none()
    }
}
