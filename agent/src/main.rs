//! The `sesame-agent` command.

use std::process::ExitCode;

// Resolution makes and drops many small values at every change; how the allocator gives that memory back
// is set in `.cargo/config.toml`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Set when it is built, so that a change of it compiles nothing but this file.
    sesame_agent::cli::main(option_env!("SESAME_REVISION"))
}
