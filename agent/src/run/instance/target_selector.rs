//! What a Gateway's Envoy is brought to: what the source wants, unless that is held or somebody has rolled back.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::removal_guard::RemovalGuard;
use crate::run::target::Target;
use crate::run::{accepted, history};

/// See the module.
pub(super) struct TargetSelector {
    directory: PathBuf,
    gate: RemovalGuard,
    /// The newest of the source.
    source: Arc<Target>,
    /// What Envoy is brought to.
    pursued: Arc<Target>,
    pinned: Option<u64>,
    held: Option<String>,
}

impl TargetSelector {
    /// Begins with what the source wants first, what was rolled back to before, or what was accepted before.
    pub(super) fn new(
        source: Arc<Target>,
        directory: PathBuf,
        most_removed: u8,
        pause: Duration,
    ) -> Self {
        let mut desire = Self {
            gate: RemovalGuard::new(most_removed, pause),
            pursued: Arc::clone(&source),
            source,
            pinned: None,
            held: None,
            directory,
        };
        if let Some(number) = history::pinned(&desire.directory) {
            if let Err(error) = desire.go_back(number) {
                tracing::error!("{error}");
            }
        } else if !desire.source.restored
            && let Ok(Some(before)) = accepted::load(&desire.directory)
        {
            let before = Arc::new(desire.source.with(&before, "what was accepted before"));
            if !desire.lets(Some(&before)) {
                desire.pursued = before;
            }
        }
        desire
    }

    /// What Envoy is to be brought to.
    pub(super) fn pursued(&self) -> &Arc<Target> {
        &self.pursued
    }

    /// Why that is not what the source wants, if it is not.
    pub(super) fn held(&self) -> Option<String> {
        match self.pinned {
            Some(number) => Some(format!(
                "rolled back to generation {number}; `sesame-agent resume` follows the source again"
            )),
            None => self.held.clone(),
        }
    }

    /// When to call [`TargetSelector::recheck`].
    pub(super) fn next(&self) -> Option<Instant> {
        self.gate.next().filter(|_| self.pinned.is_none())
    }

    /// The source wants something else; whether that is pursued.
    pub(super) fn follow(&mut self, source: Arc<Target>) -> bool {
        self.source = source;
        self.recheck()
    }

    /// Whether what the source wants may be pursued by now, and is.
    pub(super) fn recheck(&mut self) -> bool {
        if self.pinned.is_some() || Arc::ptr_eq(&self.source, &self.pursued) {
            return false;
        }
        let pursued = Arc::clone(&self.pursued);
        let lets = self.lets(Some(&pursued));
        if lets {
            self.pursued = Arc::clone(&self.source);
        }
        lets
    }

    /// Somebody says that what is held is meant.
    pub(super) fn accept(&mut self) -> &'static str {
        if !self.gate.open() {
            return "nothing is held";
        }
        self.held = None;
        self.pursued = Arc::clone(&self.source);
        "what was held is being applied"
    }

    /// Goes back, and stays there.
    pub(super) fn roll_back(&mut self, number: u64) -> Result<String, String> {
        self.go_back(number)?;
        history::pin(&self.directory, Some(number))
            .map_err(|error| format!("it cannot be noted for the next start: {error}"))?;
        Ok(format!(
            "going back to generation {number}; `sesame-agent resume` follows the source again"
        ))
    }

    /// Follows the source again.
    pub(super) fn resume(&mut self) -> Result<String, String> {
        history::pin(&self.directory, None).map_err(|error| error.to_string())?;
        if self.pinned.take().is_none() {
            return Ok("not rolled back; nothing to take back".to_owned());
        }
        self.gate.open();
        self.held = None;
        self.pursued = Arc::clone(&self.source);
        Ok("following the source again".to_owned())
    }

    fn go_back(&mut self, number: u64) -> Result<(), String> {
        let resolved = history::load(&self.directory, number).map_err(|e| format!("{e:#}"))?;
        let cause = format!("a rollback to generation {number}");
        self.pursued = Arc::new(self.source.with(&resolved, &cause));
        self.pinned = Some(number);
        Ok(())
    }

    fn lets(&mut self, served: Option<&Target>) -> bool {
        let size = |wanted: &Target| wanted.packed.counts();
        let source = &self.source;
        let checked = self.gate.check(
            served.map(size),
            size(source),
            || source.revision().to_owned(),
            Instant::now(),
        );
        self.held = checked.err();
        self.held.is_none()
    }
}
