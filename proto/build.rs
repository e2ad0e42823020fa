//! Compiles the schema without `protoc`.

#![allow(
    clippy::disallowed_methods,
    reason = "a build script reads and writes files"
)]

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

/// Large, rarely set fields. Boxing saves memory, because a snapshot can contain many routes and
/// backends.
const BOXED_FIELDS: &[&str] = &[
    "Route.request_headers",
    "Route.response_headers",
    "Route.cors",
    "Snapshot.filters",
    "Route.filters",
    "Forward.rewrite",
    "Forward.retry",
    "Forward.session",
    "Forward.internal_redirect",
    "WeightedBackend.request_headers",
    "WeightedBackend.response_headers",
    "WeightedBackend.rewrite",
    "Backend.tls",
    "Backend.load_balancer",
    "Backend.health_check",
    "Backend.outlier",
    "Backend.breaker",
    "Backend.connections",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/snapshot.proto", "proto/bundle.proto"], ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("snapshot.bin"), descriptors.encode_to_vec())?;
    let messages = descriptors.file.iter().flat_map(|file| &file.message_type);
    let sizes: Vec<String> = messages
        .clone()
        .map(|message| format!("(\"{0}\", size_of::<{0}>())", message.name()))
        .collect();
    std::fs::write(out.join("sizes.rs"), format!("&[{}]", sizes.join(",")))?;
    let numbers = messages.map(|message| {
        let constant = |(name, number): (&str, i32)| {
            format!("pub(crate) const {}: u32 = {number};", name.to_uppercase())
        };
        let fields = message.field.iter();
        let constants = fields.map(|field| constant((field.name(), field.number())));
        let name = snake_case(message.name());
        format!(
            "pub(crate) mod {name} {{{}}}",
            constants.collect::<String>()
        )
    });
    std::fs::write(out.join("numbers.rs"), numbers.collect::<String>())?;
    let mut config = prost_build::Config::new();
    for field in BOXED_FIELDS {
        config.boxed(field);
    }
    config
        .btree_map(["."])
        .type_attribute("Snapshot", "#[must_use]")
        .compile_fds(descriptors)?;
    Ok(())
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
