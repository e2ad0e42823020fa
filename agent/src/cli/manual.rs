//! `sesame-agent man` and `completion`: generate the files that packages install.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, output};

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory to write to, created if needed.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// Shell.
    shell: Shell,
}

pub(crate) fn man(args: &ManArgs) -> anyhow::Result<u8> {
    let dir = &args.dir;
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), dir)
        .with_context(|| dir.display().to_string())?;
    Ok(0)
}

pub(crate) fn completion(args: &CompletionArgs) -> anyhow::Result<u8> {
    let mut bytes = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sesame-agent", &mut bytes);
    output::bytes(&bytes)?;
    Ok(0)
}
