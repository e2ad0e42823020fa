//! `sesame-agent launch-envoy`: starts an Envoy that outlives the agent. Internal.

use std::ffi::OsString;

use clap::Args;

use sesame_envoy::process::launch;

#[derive(Debug, Args)]
pub(crate) struct LaunchArgs {
    /// Wait until this parent process has exited, then execute the program.
    #[arg(long, value_name = "PID")]
    orphan_of: Option<u32>,
    /// Program and its arguments.
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

pub(crate) fn main(args: &LaunchArgs) -> anyhow::Result<u8> {
    launch::run(args.orphan_of, &args.program)?;
    Ok(0)
}
