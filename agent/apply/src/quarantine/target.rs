//! An Envoy's target configuration, and the reduced one to serve if Envoy rejects it.

use std::sync::Arc;

use sesame_proto::encoded::EncodedSnapshot;
use sesame_render::{RenderOptions, Rendered};

/// Configuration that an Envoy should serve.
#[derive(Clone, Copy, Debug)]
pub struct Configuration<'a> {
    /// Snapshot and its key pairs.
    pub encoded: &'a Arc<EncodedSnapshot>,
    /// Options for rendering.
    pub options: &'a RenderOptions,
    /// Resources rendered from the snapshot.
    pub rendered: &'a Rendered,
}

/// Configuration to serve instead of a rejected target.
#[derive(Clone, Debug)]
pub struct Reduced {
    /// Snapshot without the rejected parts, and its key pairs.
    pub encoded: Arc<EncodedSnapshot>,
    /// Resources without the listeners that cannot be opened.
    pub rendered: Rendered,
}
