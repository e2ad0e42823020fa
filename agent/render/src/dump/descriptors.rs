//! The descriptors of the rendered part of the Envoy API. The test `envoy_descriptors` writes them.

use std::sync::OnceLock;

use prost_reflect::DescriptorPool;

use super::DumpError;

static COMPRESSED: &[u8] = include_bytes!("../../data/envoy-api.binpb.zst");

/// Maximum decompressed size, about three times the actual one.
const MAX_BYTES: usize = 1024 * 1024;

/// Returns the pool, which is built on first use in about 10 ms. Serving never needs it.
pub(super) fn pool() -> Result<&'static DescriptorPool, DumpError> {
    static POOL: OnceLock<Result<DescriptorPool, String>> = OnceLock::new();
    POOL.get_or_init(|| {
        let bytes = zstd::bulk::decompress(COMPRESSED, MAX_BYTES);
        let bytes = bytes.map_err(|error| error.to_string())?;
        DescriptorPool::decode(bytes.as_slice()).map_err(|error| error.to_string())
    })
    .as_ref()
    .map_err(|error| DumpError::Descriptors(error.clone()))
}
