//! Parses the command line, runs the command, and returns its exit code.
//!
//! Exit codes:
//!
//! - 0 on success, and after a termination signal;
//! - 1 for an invalid configuration, a fleet to adopt, a request that no route matches, or a
//!   protection that cannot be converted;
//! - 2 for invalid arguments;
//! - 3 if the command failed.

mod args;
mod convert;
mod crds;
mod explain;
mod export;
mod fleet;
mod hosts;
mod kubectl;
mod manual;
mod metrics_address;
mod published;
#[cfg(test)]
mod reference;
mod validate;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;

use self::args::{LogFormat, RunArgs};
use self::convert::ConvertArgs;
use self::explain::PublishedRequestArgs;
use self::export::ExportArgs;
use self::fleet::FleetArgs;
use self::hosts::HostsArgs;
use self::validate::ValidateArgs;

const EXIT_FAULT: u8 = 1;
const EXIT_FAILED: u8 = 3;
const EXIT_WRONG_CALL: u8 = 2;

/// Resolves a cluster's Gateway API objects, publishes them for Sesame's agents, and writes their statuses.
#[derive(Debug, Parser)]
#[command(name = "sesame-controller", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controller until stopped by a signal.
    Run(Box<RunArgs>),
    /// Report all errors in a configuration; exit with 1 if there are any.
    Validate(ValidateArgs),
    /// Print Sesame's CustomResourceDefinitions, to be applied to the cluster.
    Crds {
        /// Print the definitions of HTTPProxy, TLSCertificateDelegation and ExtensionService instead, for clusters without Contour.
        #[arg(long)]
        contour: bool,
    },
    /// Invite, list and revoke hosts outside the cluster.
    Hosts(Box<HostsArgs>),
    /// Adopt existing fleets: show the changes needed for the controller to manage them, and
    /// approve them.
    Fleet(Box<FleetArgs>),
    /// Create a bundle for a published Gateway: a signed file for hosts without a network
    /// connection.
    Export(Box<ExportArgs>),
    /// Convert another gateway's objects, and report what became of each field; exit with 1 if a
    /// protection cannot be converted.
    Convert(Box<ConvertArgs>),
    /// Show how a published Gateway routes a request, and why; exit with 1 if no route matches.
    Explain(Box<PublishedRequestArgs>),
    /// Write the manual pages, one for each command.
    Man {
        /// Directory to write to, created if needed.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print the shell completion script.
    Completion {
        /// Shell.
        shell: Shell,
    },
}

pub use self::kubectl::plugin_command;

/// Returns the program's commands and options.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses the arguments and runs the command. `revision` is the commit of the build, if known.
pub fn main(revision: Option<&'static str>) -> ExitCode {
    let revision = revision
        .filter(|known| !known.is_empty())
        .unwrap_or("unknown");
    let arguments: Vec<String> = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let (program, words) = match arguments.split_first() {
        Some((program, words)) => (Path::new(program).file_name(), words),
        None => (None, &[] as &[String]),
    };
    match program.and_then(|name| name.to_str()) {
        Some(kubectl::PLUGIN_NAME) => return kubectl::main(),
        Some(kubectl::COMPLETION_NAME) => {
            return exit_code(output(kubectl::complete(words).as_bytes()).map(|()| true));
        }
        _ => {}
    }
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        if error.kind() == ErrorKind::DisplayVersion {
            let version = env!("CARGO_PKG_VERSION");
            let text = format!("sesame-controller {version} (revision {revision})\n");
            let printed = std::io::stdout().lock().write_all(text.as_bytes());
            std::process::exit(printed.map_or(EXIT_FAILED, |()| 0).into());
        }
        error.exit()
    });
    let done = match cli.command {
        Command::Run(args) => return run(*args, revision),
        Command::Export(args) => export::main(&args),
        Command::Crds { contour: false } => crds::yaml().and_then(|text| output(text.as_bytes())),
        Command::Crds { contour: true } => {
            crds::contour_yaml().and_then(|text| output(text.as_bytes()))
        }
        Command::Hosts(args) => hosts::main(*args),
        Command::Fleet(args) => return exit_code(fleet::main(*args)),
        Command::Validate(args) => return exit_code(validate::main(&args)),
        Command::Convert(args) => return exit_code(convert::main(&args)),
        Command::Explain(args) => return exit_code(explain::main(&args)),
        Command::Man { dir } => manual::man(&dir),
        Command::Completion { shell } => manual::completion(shell),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, EXIT_FAILED),
    }
}

fn exit_code(outcome: anyhow::Result<bool>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_FAULT),
        Err(error) => fail(&error, EXIT_FAILED),
    }
}

/// A closed pipe is not an error.
fn output(bytes: &[u8]) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

fn run(args: RunArgs, revision: &'static str) -> ExitCode {
    let settings = match args.settings() {
        Ok(settings) => settings,
        Err(error) => return fail(&error, EXIT_WRONG_CALL),
    };
    let (log, format, settings) = settings;
    if let Err(error) = start_logging(&log, format) {
        return fail(&error, EXIT_WRONG_CALL);
    }
    match crate::run::run(&settings, revision) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(
                error = format!("{error:#}"),
                "the controller cannot continue"
            );
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn start_logging(log: &str, format: LogFormat) -> anyhow::Result<()> {
    use anyhow::Context as _;
    let filter = EnvFilter::try_new(log).with_context(|| format!("log filter {log:?}"))?;
    // The client logs responses that it cannot parse, and such a response may be a Secret.
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
    let _ = writeln!(std::io::stderr().lock(), "error: {error:#}");
    ExitCode::from(code)
}
