//! Verifies in the background, by TLS handshakes, that Envoy presents changed certificates.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sesame_backoff::Backoff;
use sesame_proto::keys::KeyPair;
use tokio::task::JoinHandle;

use crate::target::Target;
use sesame_envoy::handshake::{CertificateProof, ChangedKeys, Unproven, proofs, prove};

/// Number of consecutive failed attempts after which failures are reported.
const QUIET: u32 = 3;
const PAUSES: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(60));

pub(super) struct Handshakes {
    /// The last target for which verification began, or the target served when the agent started.
    known: Option<Arc<Target>>,
    open: ChangedKeys,
    failures: u32,
    task: Option<JoinHandle<Vec<Unproven>>>,
}

impl Handshakes {
    pub(super) fn new(first: &Arc<Target>) -> Self {
        Self {
            known: first.restored.then(|| Arc::clone(first)),
            open: ChangedKeys::new(),
            failures: 0,
            task: None,
        }
    }

    pub(super) fn begin(&mut self, served: &Arc<Target>) {
        let Some(before) = self.known.replace(Arc::clone(served)) else {
            // A new Envoy has no older key pairs, so comparing serial numbers is sufficient.
            return;
        };
        if before.encoded.keys() == served.encoded.keys() {
            // Listeners that did not present the unverified key pairs before may present them now.
            if !self.open.is_empty() {
                self.start(served, Duration::ZERO);
            }
            return;
        }
        let by_name = |pairs: &[KeyPair]| -> BTreeMap<String, KeyPair> {
            let named = pairs.iter().map(|pair| (pair.name.clone(), pair.clone()));
            named.collect()
        };
        let before = by_name(before.encoded.keys());
        let now = served.encoded.keys().iter();
        let changed = now
            .clone()
            .filter(|pair| before.get(&pair.name) != Some(pair));
        self.open.extend(changed.map(|pair| pair.name.clone()));
        let there: ChangedKeys = now.map(|pair| pair.name.clone()).collect();
        self.open.retain(|name| there.contains(name));
        self.failures = 0;
        self.start(served, Duration::ZERO);
    }

    /// Waits forever if no attempt is in progress.
    pub(super) async fn finished(&mut self) -> Vec<Unproven> {
        let Some(task) = &mut self.task else {
            return std::future::pending().await;
        };
        let outcome = task.await;
        self.task = None;
        outcome.unwrap_or_else(|error| {
            tracing::error!(
                %error,
                "TLS handshakes with this host's listeners failed unexpectedly"
            );
            Vec::new()
        })
    }

    /// Returns persistent failures, by listener.
    pub(super) fn record(&mut self, unproven: &[Unproven]) -> BTreeMap<String, String> {
        self.open = unproven.iter().map(|it| it.proof.key.clone()).collect();
        if unproven.is_empty() {
            self.failures = 0;
            return BTreeMap::new();
        }
        if let Some(served) = self.known.clone() {
            self.start(&served, PAUSES.doubled(self.failures));
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures < QUIET {
            return BTreeMap::new();
        }
        let persistent = unproven.iter();
        persistent
            .map(|it| (it.proof.listener.clone(), it.why.clone()))
            .collect()
    }

    fn start(&mut self, served: &Target, pause: Duration) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        let snapshot = served.encoded.rest();
        let keys = served.encoded.keys();
        let wanted: Vec<CertificateProof> = proofs(snapshot, keys, &self.open, &served.options);
        self.task = Some(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            prove(wanted).await
        }));
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
