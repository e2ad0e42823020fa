//! Descriptors for the rendered Envoy API types. The test `envoy_descriptors` generates them.

use std::sync::OnceLock;

use prost_reflect::DescriptorPool;

use super::DumpError;

static COMPRESSED: &[u8] = include_bytes!("../../data/envoy-api.binpb.zst");

/// Maximum decompressed size in bytes, about three times the actual size.
const MAX_BYTES: usize = 1024 * 1024;

/// The first call takes about 10 ms to build the pool, which is not needed to serve traffic.
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
