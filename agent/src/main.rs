//! The `sesame-agent` command.
fn main() {}
