//! The controller's binary.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Set when it is built, so that a change of it compiles nothing but this file.
    sesame_controller::cli::main(option_env!("SESAME_REVISION"))
}
