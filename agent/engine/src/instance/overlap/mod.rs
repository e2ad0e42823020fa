//! Keeps certificates trusted for a while after a rotation removed them from their trust bundle.
//!
//! The certificates are stored before Envoy gets them, so that a crash or reboot cannot extend the
//! trust. Never changes a snapshot.

mod memory;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sesame_files::open::{self, Rule};
use sesame_proto::schema::Snapshot;
use sesame_render::RetainedAuthorities;

use self::memory::BundleMemory;
use crate::target::Target;
use sesame_host::durable::{create_directory, replace_file};
use sesame_host::remove_if_exists;

const FILE: &str = "overlap.json";
/// Maximum file size in bytes, several times the size of a Gateway's bundles.
const MAX_BYTES: u64 = 32 << 20;
/// Check at least this often, because the clock may be adjusted.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

pub(super) struct Overlap {
    path: PathBuf,
    memory: BundleMemory,
    /// `None` if the file does not exist.
    stored: Option<BundleMemory>,
    /// Overrides the snapshot's overlap.
    setting: Option<Duration>,
    declared: Duration,
    /// The last target, without and with its retained certificates.
    last: Option<(Arc<Target>, Arc<Target>)>,
}

impl Overlap {
    /// Retains no certificates if the stored state cannot be read.
    pub(super) fn open(directory: &Path, setting: Option<Duration>) -> Self {
        let path = directory.join(FILE);
        let stored = match open::read_text(&path, Rule::Own, MAX_BYTES) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| error.to_string()),
            Err(error) if !path.exists() => {
                tracing::debug!(%error, "no retained certificates are stored");
                Ok(None)
            }
            Err(error) => Err(error.to_string()),
        };
        let stored: Option<BundleMemory> = stored.unwrap_or_else(|error| {
            tracing::error!(path = %path.display(), error, "cannot read the certificates that rotations removed from trust bundles; they are no longer trusted");
            None
        });
        Self {
            path,
            memory: stored.clone().unwrap_or_default(),
            stored,
            setting,
            declared: Duration::ZERO,
            last: None,
        }
    }

    /// Returns true if Envoy's files may contain certificates whose trust has ended.
    pub(super) fn has_stored_state(&self) -> bool {
        self.stored.is_some()
    }

    pub(super) fn set(&mut self, setting: Option<Duration>) {
        self.setting = setting;
    }

    /// Without a stored state, starts from the bundles that were accepted before the agent started.
    pub(super) fn begin_with(&mut self, accepted: &Snapshot) {
        if self.stored.is_none() {
            self.memory
                .follow(&accepted.trust_bundles, Duration::ZERO, Timestamp::now());
        }
    }

    /// Returns the previous result if nothing has changed.
    pub(super) fn with_retained(&mut self, target: &Arc<Target>) -> Arc<Target> {
        let now = Timestamp::now();
        let last = self.last.take();
        self.follow(target, last.as_ref().map(|(before, _)| before), now);
        self.memory.limit_to_overlap(self.length(), now);
        self.store();
        let retained = self.memory.retained(now);
        let retaining = match last {
            Some((before, retaining))
                if Arc::ptr_eq(&before, target) && retaining.options.retained == retained =>
            {
                retaining
            }
            _ if retained.is_empty() => Arc::clone(target),
            last => {
                let before = last.map(|(_, retaining)| retaining);
                let reported = before.as_ref().map(|before| &before.options.retained);
                if reported != Some(&retained) {
                    log_retained(&retained);
                }
                let certificates = self.memory.ends(now);
                Arc::new(target.retaining(retained, certificates, before.as_deref()))
            }
        };
        self.last = Some((Arc::clone(target), Arc::clone(&retaining)));
        retaining
    }

    /// Returns the time at which `with_retained` must be called again.
    pub(super) fn next(&self) -> Option<Instant> {
        let now = Timestamp::now();
        let left = self.memory.next(now)?.duration_since(now).unsigned_abs();
        Some(Instant::now() + left.min(POLL_INTERVAL))
    }

    fn length(&self) -> Duration {
        self.setting.unwrap_or(self.declared)
    }

    fn follow(&mut self, target: &Arc<Target>, before: Option<&Arc<Target>>, now: Timestamp) {
        let is_same = |before: &Arc<Target>| {
            Arc::ptr_eq(before, target) || target.encoded.unchanged_since(&before.encoded).rest
        };
        if before.is_some_and(is_same) {
            return;
        }
        let rotation = target.encoded.rest().rotation.unwrap_or_default();
        self.declared = Duration::from_millis(rotation.bundle_overlap_ms);
        let bundles = &target.encoded.rest().trust_bundles;
        self.memory.follow(bundles, self.length(), now);
    }

    fn write(&self, bytes: &[u8]) -> std::io::Result<()> {
        // The Gateway's directory may not exist yet.
        self.path.parent().map_or(Ok(()), create_directory)?;
        replace_file(&self.path, bytes)
    }

    fn store(&mut self) {
        let wanted = (!self.length().is_zero()).then_some(&self.memory);
        if wanted == self.stored.as_ref() {
            return;
        }
        let written = match wanted.map(serde_json::to_vec).transpose() {
            Ok(Some(bytes)) => self.write(&bytes),
            Ok(None) => remove_if_exists(&self.path),
            Err(error) => Err(error.into()),
        };
        match written {
            Ok(()) => self.stored = wanted.cloned(),
            // Without the file, the next agent trusts only declared certificates.
            Err(error) => {
                tracing::warn!(
                    path = %self.path.display(),
                    %error,
                    "cannot store the certificates that rotations removed from trust bundles; they \
                     will not be trusted after the agent restarts"
                );
            }
        }
    }
}

fn log_retained(retained: &BTreeMap<String, RetainedAuthorities>) {
    for (bundle, RetainedAuthorities { pem, .. }) in retained {
        let certificates = pem.matches("-----BEGIN ").count();
        tracing::info!(
            bundle,
            certificates,
            "a trust bundle is being rotated; its removed certificates remain trusted for a while"
        );
    }
}
