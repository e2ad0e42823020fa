//! The command line: arguments in, an exit code out.
//!
//! Exit codes: 0 after a signal to stop, 1 for a configuration that is not valid, 2 for a wrong call, 3 when the controller could not do its work.

mod args;
mod crds;
mod export;
mod hosts;
#[cfg(test)]
mod reference;
mod validate;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;

use self::args::{LogFormat, RunArgs};
use self::export::ExportArgs;
use self::hosts::HostsArgs;
use self::validate::ValidateArgs;

/// Exit code when what was validated is wrong.
const EXIT_WRONG: u8 = 1;
/// Exit code when the command could not do its work.
const EXIT_FAILED: u8 = 3;
/// Exit code when the command was called wrongly.
const EXIT_WRONG_CALL: u8 = 2;

/// Resolves the Gateway API objects of a cluster, publishes them for Sesame's agents, and writes their statuses.
#[derive(Debug, Parser)]
#[command(name = "sesame-controller", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the cluster until told to stop.
    Run(Box<RunArgs>),
    /// Say everything that is wrong with a configuration, and exit with 1 if anything is.
    Validate(ValidateArgs),
    /// Print the definitions of Sesame's own kinds, to be applied to the cluster.
    Crds,
    /// Hosts outside the cluster: invite, list and revoke them.
    Hosts(Box<HostsArgs>),
    /// Make a bundle of what is published of a Gateway: a signed file for hosts that are connected to nothing.
    Export(Box<ExportArgs>),
}

/// Parses the arguments and runs the command.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run(*args),
        Command::Export(args) => match export::main(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, EXIT_FAILED),
        },
        Command::Validate(args) => match validate::main(&args) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(EXIT_WRONG),
            Err(error) => fail(&error, EXIT_FAILED),
        },
        Command::Crds => match crds::yaml() {
            Ok(text) => match std::io::stdout().lock().write_all(text.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::from(EXIT_FAILED),
            },
            Err(error) => fail(&error, EXIT_FAILED),
        },
        Command::Hosts(args) => match hosts::main(*args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, EXIT_FAILED),
        },
    }
}

fn run(args: RunArgs) -> ExitCode {
    let settings = match args.settings() {
        Ok(settings) => settings,
        Err(error) => return fail(&error, EXIT_WRONG_CALL),
    };
    let (log, format, settings) = settings;
    if let Err(error) = start_logging(&log, format) {
        return fail(&error, EXIT_WRONG_CALL);
    }
    match crate::run::run(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the controller cannot go on");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn start_logging(log: &str, format: LogFormat) -> anyhow::Result<()> {
    use anyhow::Context as _;
    let filter = EnvFilter::try_new(log).with_context(|| format!("log filter {log:?}"))?;
    // The client logs whole answers that it cannot read; one may be a Secret.
    let silent: Directive = "kube_client::client=off".parse()?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter.add_directive(silent))
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => subscriber.with_ansi(false).init(),
        LogFormat::Json => subscriber.json().init(),
    }
    Ok(())
}

fn fail(error: &anyhow::Error, code: u8) -> ExitCode {
    // There is nowhere else to say it.
    let _ = writeln!(std::io::stderr().lock(), "error: {error:#}");
    ExitCode::from(code)
}
