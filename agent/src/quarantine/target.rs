//! The target configuration of an Envoy, and the configuration without culprits. Plain values.

use std::sync::Arc;

use sesame_proto::encoded::EncodedSnapshot;
use sesame_render::{RenderOptions, Rendered};

/// Configuration to be served.
#[derive(Clone, Copy, Debug)]
pub struct Configuration<'a> {
    /// Snapshot with its key pairs.
    pub encoded: &'a Arc<EncodedSnapshot>,
    /// Options for rendering it.
    pub options: &'a RenderOptions,
    /// Rendered resources.
    pub rendered: &'a Rendered,
}

/// Configuration served instead of a target.
#[derive(Clone, Debug)]
pub struct Reduced {
    /// Snapshot with its key pairs, without the rejected parts.
    pub encoded: Arc<EncodedSnapshot>,
    /// Rendered resources, without listeners that cannot be opened.
    pub rendered: Rendered,
}
