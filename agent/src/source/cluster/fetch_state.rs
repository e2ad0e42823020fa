//! The assembler of one Gateway, and the state of the requests that complete it. Values only, but for the time at which a manifest arrived.

use std::collections::BTreeMap;
use std::time::SystemTime;

use k8s_openapi::api::core::v1::ConfigMap;
use sesame_gateway_api::api::NamespacedName;

use super::assembler::RevisionAssembler;
use super::backoff::Backoff;
use crate::source::update::{GatewayUpdate, Receipt};

/// An assembler, and the state of its requests.
pub(super) struct FetchState {
    pub(super) assembler: RevisionAssembler,
    pub(super) backoff: Backoff,
    /// Counts manifests. A request for an earlier one is of no use for this one.
    pub(super) round: u64,
    /// True while a fetch or a pause of this round is in progress.
    pub(super) busy: bool,
    /// True if it is a pause.
    pub(super) paused: bool,
    /// True while its manifest is being looked for by name.
    pub(super) doubted: bool,
    /// Arrival of its manifest.
    receipt: Option<Receipt>,
}

impl FetchState {
    /// Starts without requests.
    pub(super) fn of(assembler: RevisionAssembler) -> Self {
        Self {
            assembler,
            backoff: Backoff::default(),
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

    /// Ends a pause that has grown while the cluster was away. Returns whether there was one.
    pub(super) fn resume(&mut self) -> bool {
        let resumes = self.paused && !self.doubted;
        if resumes {
            self.begin_round();
        }
        resumes
    }

    /// Notes that this manifest has arrived now.
    pub(super) fn note_receipt(&mut self, manifest: &ConfigMap) {
        let version = manifest.metadata.resource_version.as_deref();
        self.receipt = version.and_then(|version| {
            Some(Receipt {
                seen: SystemTime::now(),
                version: version.parse().ok()?,
            })
        });
    }

    /// Returns the update of the Gateway; none while that is not known. Adds the arrival of its manifest to these, if nothing of the
    /// revision is missing.
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
