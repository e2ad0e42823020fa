//! Access logs from a real Envoy.

mod content;
mod files;
pub(crate) mod logs;

const HOST: &str = "web.test";
