//! Compiles the schema without `protoc`: `protox` parses it, `prost-build` writes the Rust types.

#![allow(
    clippy::disallowed_methods,
    reason = "a build script reads and writes files"
)]

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/snapshot.proto"], ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("snapshot.bin"), descriptors.encode_to_vec())?;
    // What each message takes in memory, by name: for `bounds`.
    let messages = descriptors.file.iter().flat_map(|file| &file.message_type);
    let sizes: Vec<String> = messages
        .map(|message| format!("(\"{0}\", size_of::<{0}>())", message.name()))
        .collect();
    std::fs::write(out.join("sizes.rs"), format!("&[{}]", sizes.join(",")))?;
    prost_build::Config::new()
        .btree_map(["."])
        .type_attribute("Snapshot", "#[must_use]")
        .compile_fds(descriptors)?;
    Ok(())
}
