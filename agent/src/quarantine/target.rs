//! The target configuration of an Envoy, and its remainder without culprits: values.

use std::sync::Arc;

use sesame_proto::encoded::EncodedSnapshot;
use sesame_render::{RenderOptions, Rendered};

/// Configuration that is to be served.
#[derive(Clone, Copy, Debug)]
pub struct Configuration<'a> {
    /// The snapshot and its key pairs.
    pub encoded: &'a Arc<EncodedSnapshot>,
    /// Options for rendering it.
    pub options: &'a RenderOptions,
    /// Resources that it renders to.
    pub rendered: &'a Rendered,
}

/// Configuration that is served instead of a target.
#[derive(Clone, Debug)]
pub struct Reduced {
    /// The snapshot and its key pairs, without the rejected parts.
    pub encoded: Arc<EncodedSnapshot>,
    /// Resources that it renders to, without the listeners that cannot be opened.
    pub rendered: Rendered,
}
