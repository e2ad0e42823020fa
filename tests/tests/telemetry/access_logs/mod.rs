//! Access logs from a real Envoy.

mod content;
mod files;
mod logs;

const HOST: &str = "web.test";
