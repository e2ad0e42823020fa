//! The controller's binary.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Read the revision here, so that a new commit recompiles only this file.
    sesame_controller::cli::main(option_env!("SESAME_REVISION"))
}
