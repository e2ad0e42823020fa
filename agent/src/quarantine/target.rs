//! An Envoy's target configuration, and the reduced configuration to serve if Envoy rejects the
//! target. Plain values.

use std::sync::Arc;

use sesame_proto::encoded::EncodedSnapshot;
use sesame_render::{RenderOptions, Rendered};

/// Configuration that an Envoy should serve.
#[derive(Clone, Copy, Debug)]
pub struct Configuration<'a> {
    /// Snapshot and its key pairs.
    pub encoded: &'a Arc<EncodedSnapshot>,
    /// Options with which the snapshot is rendered.
    pub options: &'a RenderOptions,
    /// Resources rendered from the snapshot.
    pub rendered: &'a Rendered,
}

/// Configuration to serve instead of a target that Envoy rejects.
#[derive(Clone, Debug)]
pub struct Reduced {
    /// Snapshot without the rejected parts, and its key pairs.
    pub encoded: Arc<EncodedSnapshot>,
    /// Resources rendered from the snapshot, without the listeners that cannot be opened.
    pub rendered: Rendered,
}
