//! Limits for reading a manifest directory.

use sesame_kinds::decode;

/// Limits for one manifest directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// Maximum directory depth.
    pub depth: usize,
    /// Maximum number of manifests.
    pub files: usize,
    /// Maximum size of a manifest in bytes.
    pub file_bytes: u64,
    /// Maximum total size of all manifests in bytes.
    pub total_bytes: u64,
    /// Whether links may point outside the directory.
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
