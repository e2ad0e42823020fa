//! The controller's binary.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Read here to limit recompilation after a commit to this file.
    sesame_controller::cli::main(option_env!("SESAME_REVISION"))
}
