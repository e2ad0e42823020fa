//! Access logs: the content of lines, attempts to forge lines, and the log files. Uses a real agent
//! with a real Envoy.

mod content;
mod files;
mod logs;

const HOST: &str = "web.test";
