//! Renders a target with certificates that are trusted although the snapshot does not declare them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use sesame_kinds::api::NamespacedName;
use sesame_render::RetainedAuthorities;

use super::{Target, render_difference};

/// A certificate that is still trusted, although a rotation removed it from a trust bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RetainedCertificate {
    pub(crate) bundle: String,
    pub(crate) pem: String,
    /// When trust in the certificate ends.
    pub(crate) until: Timestamp,
}

impl Target {
    /// If possible, renders only differences from `before`.
    pub(crate) fn retaining(
        &self,
        retained: BTreeMap<String, RetainedAuthorities>,
        certificates: Vec<RetainedCertificate>,
        before: Option<&Self>,
    ) -> Self {
        let options = sesame_render::RenderOptions {
            retained,
            ..self.options.clone()
        };
        let offer = self.to_revision(&NamespacedName::default());
        let mut rendered = before
            .filter(|before| before.options == options)
            .and_then(|before| render_difference(before, &offer.encoded, &options))
            .unwrap_or_else(|| sesame_render::render_encoded(&self.encoded, &options));
        rendered.share_with(&self.rendered);
        Self {
            rendered,
            options,
            encoded: Arc::clone(&self.encoded),
            assignment: self.assignment.clone(),
            bootstrap: self.bootstrap.clone(),
            restored: self.restored,
            cause: self.cause.clone(),
            manifest_revision: self.manifest_revision.clone(),
            retained: certificates,
            staging: self.staging.clone(),
            others: Arc::clone(&self.others),
            files: Arc::clone(&self.files),
            revision: self.revision.clone(),
            staged_digest: self.staged_digest.clone(),
            expiries: OnceLock::new(),
            times: self.times.clone(),
        }
    }
}
