//! The `sesame-agent` command.

use std::process::ExitCode;

// The resolver allocates many small values for each change. `.cargo/config.toml` configures when
// jemalloc returns freed memory.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Read the variable only here, so that a new revision recompiles only this file.
    sesame_agent::cli::main(option_env!("SESAME_REVISION"))
}
