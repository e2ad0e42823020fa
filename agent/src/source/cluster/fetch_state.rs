//! Holds one Gateway's assembler, and the state of the requests that complete it. Pure, except that
//! it reads the clock when a manifest arrives.

use std::collections::BTreeMap;
use std::time::SystemTime;

use k8s_openapi::api::core::v1::ConfigMap;
use sesame_backoff::Backoff;
use sesame_gateway_api::api::NamespacedName;

use super::assembler::RevisionAssembler;
use super::backoff::USUAL;
use crate::source::update::{GatewayUpdate, Receipt};

/// An assembler, and the state of its requests.
pub(super) struct FetchState {
    pub(super) assembler: RevisionAssembler,
    pub(super) backoff: Backoff,
    /// Number of the current round of requests. The results of earlier rounds are ignored.
    pub(super) round: u64,
    /// True while a fetch or a pause of this round is in progress.
    pub(super) busy: bool,
    /// True if the work in progress is a pause.
    pub(super) paused: bool,
    /// True while the Gateway's manifest is being read by name.
    pub(super) doubted: bool,
    /// Arrival time and version of the manifest.
    receipt: Option<Receipt>,
}

impl FetchState {
    /// Creates the state, without any requests.
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

    /// Begins another round. Work in progress for an earlier round is obsolete.
    pub(super) fn begin_round(&mut self) {
        self.round += 1;
        (self.busy, self.paused, self.doubted) = (false, false, false);
        self.backoff.reset();
    }

    /// Ends a pause that grew during a cluster outage. Returns true if there was one.
    pub(super) fn resume(&mut self) -> bool {
        let resumes = self.paused && !self.doubted;
        if resumes {
            self.begin_round();
        }
        resumes
    }

    /// Records the arrival of this manifest.
    pub(super) fn record_receipt(&mut self, manifest: &ConfigMap) {
        let version = manifest.metadata.resource_version.as_deref();
        self.receipt = version.and_then(|version| {
            Some(Receipt {
                seen: SystemTime::now(),
                version: version.parse().ok()?,
            })
        });
    }

    /// Returns the Gateway's update, or `None` if the Gateway is unknown. Adds the arrival of its
    /// manifest to `receipts` if the revision is complete.
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
