//! `sesame-agent launch-envoy`: not for people; how the agent starts an Envoy that outlives it.

use std::ffi::OsString;

use clap::Args;

use crate::envoy::process::launch;

#[derive(Debug, Args)]
pub(crate) struct LaunchArgs {
    /// Become the program once this process, our parent, is gone.
    #[arg(long, value_name = "PID")]
    orphan_of: Option<u32>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

pub(crate) fn main(args: &LaunchArgs) -> anyhow::Result<u8> {
    launch::run(args.orphan_of, &args.program)?;
    Ok(0)
}
