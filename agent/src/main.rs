//! The `sesame-agent` command.

use std::process::ExitCode;

// Each change makes the resolver allocate and drop many small values. `.cargo/config.toml`
// configures how the allocator returns that memory.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Set when this crate is built, so that a new revision recompiles only this file.
    sesame_agent::cli::main(option_env!("SESAME_REVISION"))
}
