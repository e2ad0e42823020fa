//! One Gateway's assembler, with the state of its requests.

use std::collections::BTreeMap;
use std::time::SystemTime;

use k8s_openapi::api::core::v1::ConfigMap;
use sesame_backoff::Backoff;
use sesame_kinds::api::NamespacedName;

use super::assembler::RevisionAssembler;
use super::backoff::USUAL;
use crate::update::{GatewayUpdate, Receipt};

pub(super) struct FetchState {
    pub(super) assembler: RevisionAssembler,
    pub(super) backoff: Backoff,
    /// Results of earlier rounds are ignored.
    pub(super) round: u64,
    /// True during a fetch, and during the backoff after a failed fetch.
    pub(super) busy: bool,
    /// True during the backoff after a failed fetch.
    pub(super) paused: bool,
    /// True while the manifest is read by name, to confirm that it is gone.
    pub(super) doubted: bool,
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

    pub(super) fn begin_round(&mut self) {
        self.round += 1;
        (self.busy, self.paused, self.doubted) = (false, false, false);
        self.backoff.reset();
    }

    /// Ends a backoff once the cluster is reachable again. Returns true if a backoff was in
    /// progress.
    pub(super) fn resume(&mut self) -> bool {
        let resumes = self.paused && !self.doubted;
        if resumes {
            self.begin_round();
        }
        resumes
    }

    pub(super) fn record_receipt(&mut self, manifest: &ConfigMap) {
        let version = manifest.metadata.resource_version.as_deref();
        self.receipt = version.and_then(|version| {
            Some(Receipt {
                seen: SystemTime::now(),
                version: version.parse().ok()?,
            })
        });
    }

    /// For a complete revision, adds the manifest's arrival to `receipts`.
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
