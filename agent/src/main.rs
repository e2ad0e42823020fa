//! The `sesame-agent` command.

use std::process::ExitCode;

// Resolution makes and drops many small values at every change; mimalloc gives the memory back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    sesame_agent::cli::main()
}
