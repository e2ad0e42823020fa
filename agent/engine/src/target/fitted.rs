//! Renders a target again with fewer files for Envoy to watch.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Target, render_difference};

impl Target {
    /// The endpoint sets in `first`, given by file name, get files before other sets.
    pub(crate) fn within(
        &self,
        budget: usize,
        first: BTreeSet<String>,
        before: Option<&Self>,
    ) -> Self {
        let options = sesame_render::RenderOptions {
            subscription_budget: budget,
            first_in_files: Arc::new(first),
            ..self.options.clone()
        };
        let rendered = before
            .filter(|before| before.options == options)
            .and_then(|before| render_difference(before, &self.encoded, &options))
            .unwrap_or_else(|| sesame_render::render_encoded(&self.encoded, &options));
        Self {
            options,
            rendered,
            ..self.clone()
        }
    }
}
