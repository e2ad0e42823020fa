//! The limits for reading a manifest directory.

use sesame_gateway_api::decode;

/// The limits for one manifest directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// Maximum depth of nested directories.
    pub depth: usize,
    /// Maximum number of manifests in the directory.
    pub files: usize,
    /// Maximum size in bytes of one manifest.
    pub file_bytes: u64,
    /// Maximum total size in bytes of all manifests.
    pub total_bytes: u64,
    /// True if links may lead out of the directory.
    pub links_out: bool,
    /// Limits for decoding one document.
    pub document: decode::DecodeLimits,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self {
            depth: 16,
            files: 50_000,
            file_bytes: 16 << 20,
            total_bytes: 256 << 20,
            links_out: false,
            document: decode::DecodeLimits::default(),
        }
    }
}
