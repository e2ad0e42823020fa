//! An Envoy's target configuration, and its configuration without culprits. Plain values.

use std::sync::Arc;

use sesame_proto::encoded::EncodedSnapshot;
use sesame_render::{RenderOptions, Rendered};

/// Configuration that an Envoy should serve.
#[derive(Clone, Copy, Debug)]
pub struct Configuration<'a> {
    /// Snapshot with its key pairs.
    pub encoded: &'a Arc<EncodedSnapshot>,
    /// Options for rendering the snapshot.
    pub options: &'a RenderOptions,
    /// Resources rendered from the snapshot.
    pub rendered: &'a Rendered,
}

/// Configuration to serve instead of a target that Envoy rejects.
#[derive(Clone, Debug)]
pub struct Reduced {
    /// Snapshot with its key pairs, without the rejected parts.
    pub encoded: Arc<EncodedSnapshot>,
    /// Resources rendered from the snapshot, without listeners that cannot be opened.
    pub rendered: Rendered,
}
