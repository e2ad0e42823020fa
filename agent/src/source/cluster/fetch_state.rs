//! Combines one Gateway's assembler with the state of its requests. Pure, except that it reads the
//! clock when a manifest arrives.

use std::collections::BTreeMap;
use std::time::SystemTime;

use k8s_openapi::api::core::v1::ConfigMap;
use sesame_backoff::Backoff;
use sesame_gateway_api::api::NamespacedName;

use super::assembler::RevisionAssembler;
use super::backoff::USUAL;
use crate::source::update::{GatewayUpdate, Receipt};

/// An assembler, and the state of the requests for its missing pieces.
pub(super) struct FetchState {
    pub(super) assembler: RevisionAssembler,
    pub(super) backoff: Backoff,
    /// Number of the current round of requests. Results of earlier rounds are ignored.
    pub(super) round: u64,
    /// True while a fetch of this round, or a pause before the next fetch, is in progress.
    pub(super) busy: bool,
    /// True if `busy` is due to a pause.
    pub(super) paused: bool,
    /// True while the Gateway's manifest is being read by name, to confirm that it is gone.
    pub(super) doubted: bool,
    /// When the manifest arrived, and its version.
    receipt: Option<Receipt>,
}

impl FetchState {
    pub(super) fn of(assembler: RevisionAssembler) -> Self {
        Self {
            assembler,
            backoff: USUAL,
            round: 0,
            busy: false,
            paused: false,
            doubted: false,
            receipt: None,
        }
    }

    /// Begins a new round. Fetches and pauses of earlier rounds become obsolete.
    pub(super) fn begin_round(&mut self) {
        self.round += 1;
        (self.busy, self.paused, self.doubted) = (false, false, false);
        self.backoff.reset();
    }

    /// Ends the pause before a retry, because the cluster is reachable again. Returns true if a
    /// pause was in progress.
    pub(super) fn resume(&mut self) -> bool {
        let resumes = self.paused && !self.doubted;
        if resumes {
            self.begin_round();
        }
        resumes
    }

    /// Records when this manifest arrived.
    pub(super) fn record_receipt(&mut self, manifest: &ConfigMap) {
        let version = manifest.metadata.resource_version.as_deref();
        self.receipt = version.and_then(|version| {
            Some(Receipt {
                seen: SystemTime::now(),
                version: version.parse().ok()?,
            })
        });
    }

    /// Returns the Gateway's update, or `None` if the Gateway is unknown. If the revision is
    /// complete, adds the arrival of its manifest to `receipts`.
    pub(super) fn update(
        &self,
        receipts: &mut BTreeMap<NamespacedName, Receipt>,
    ) -> Option<(NamespacedName, GatewayUpdate)> {
        let (name, update) = self.assembler.update()?;
        if let (Some(receipt), None) = (self.receipt, &update.incomplete) {
            receipts.insert(name.clone(), receipt);
        }
        Some((name, update))
    }
}
