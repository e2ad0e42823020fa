//! Access logs: what a line says, what nobody can have it say, and the files that it is in. Asked of a real agent with a real
//! Envoy.

mod content;
mod files;
mod logs;

const HOST: &str = "web.test";
