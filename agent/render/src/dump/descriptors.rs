//! The descriptors of the Envoy API, as far as we render it. `examples/envoy_descriptors.rs` writes them.

use std::sync::OnceLock;

use prost_reflect::DescriptorPool;

use super::Error;

static COMPRESSED: &[u8] = include_bytes!("../../data/envoy-api.binpb.zst");

/// What they may be decompressed; they are a third of it.
const MOST_BYTES: usize = 1024 * 1024;

/// Built at first use, in about 10 ms; nothing that serves traffic needs it.
pub(super) fn pool() -> Result<&'static DescriptorPool, Error> {
    static POOL: OnceLock<Result<DescriptorPool, String>> = OnceLock::new();
    POOL.get_or_init(|| {
        let bytes = decompressed().map_err(|error| error.to_string())?;
        DescriptorPool::decode(bytes.as_slice()).map_err(|error| error.to_string())
    })
    .as_ref()
    .map_err(|error| Error::Descriptors(error.clone()))
}

pub(super) fn decompressed() -> std::io::Result<Vec<u8>> {
    zstd::bulk::decompress(COMPRESSED, MOST_BYTES)
}
