//! The `sesame-agent` command.

use std::process::ExitCode;

// For each change, the resolver allocates and drops many small values. `.cargo/config.toml`
// configures how the allocator returns their memory to the system.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // The variable is set when this crate is built, so that a new revision recompiles only this
    // file.
    sesame_agent::cli::main(option_env!("SESAME_REVISION"))
}
