//! Compiles the schema without `protoc`: `protox` parses it, `prost-build` writes the Rust types.

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/snapshot.proto"], ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("snapshot.bin"), descriptors.encode_to_vec())?;
    prost_build::Config::new()
        .btree_map(["."])
        .type_attribute("Snapshot", "#[must_use]")
        .compile_fds(descriptors)?;
    Ok(())
}
