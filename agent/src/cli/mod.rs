//! The commands of `sesame-agent`.
//!
//! Exit codes: 0 for success, 1 if the examined data has problems, 2 for an invalid command line, 3
//! if the command failed.

mod access_log;
mod agent;
mod apply;
mod bundle;
mod certs;
#[cfg(feature = "cluster")]
mod cluster;
mod collect;
mod compare;
mod doctor;
mod drain;
mod endpoints;
mod envoy;
mod events;
mod explain;
mod forecast;
mod history;
mod host;
mod identity;
#[cfg(feature = "cluster")]
mod join;
mod launch;
mod launcher;
#[cfg(feature = "cluster")]
mod leave;
mod local_files;
mod logging;
mod logs;
mod manifests_diff;
mod manual;
mod metrics;
mod offline;
mod options;
mod output;
mod own;
mod reload;
mod render;
mod replay;
mod restart;
mod run;
mod seal;
mod settings;
mod source;
mod status;
#[cfg(feature = "cluster")]
mod store_credentials;
mod top;
mod trust;
mod validate;
mod validate_settings;
mod version;
mod why;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};

use self::agent::AgentArgs;
use self::logging::Logging;
use self::settings::reader::SettingsReader;
use self::settings::{ConfigArgs, LoadedSettings};
use self::version::ProgramVersion;
use sesame_engine::commands::InstanceCommand;

/// Exit code if the examined data has problems.
pub const EXIT_FAULT: u8 = 1;
/// Exit code for an invalid command line.
pub const EXIT_USAGE: u8 = 2;
/// Exit code if the command failed.
pub const EXIT_FAILED: u8 = 3;

/// Runs and supervises Envoy with configuration from Gateway API objects.
#[derive(Debug, Parser)]
#[command(name = "sesame-agent", version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    agent: AgentArgs,
    #[command(flatten)]
    logging: Logging,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve Gateways from manifests, snapshots, bundles or a cluster: apply every change, and keep
    /// Envoy running.
    Run(Box<run::RunArgs>),
    /// Print the Envoy configuration for manifests; changes nothing.
    Render(render::RenderArgs),
    /// Report every error in manifests, including errors found by Envoy; changes nothing.
    Validate(validate::ValidateArgs),
    /// Show the conditions of every object and the configuration that the running Envoy has
    /// accepted.
    Status(status::StatusArgs),
    /// Replace Envoy with a new process without dropping a request.
    Restart(restart::RestartArgs),
    /// Take this host out of service (become unready, then ask clients to disconnect), or return it
    /// to service.
    Drain(drain::DrainArgs),
    /// Print the access logs of this host's Gateways.
    Logs(logs::LogsArgs),
    /// Show rates, errors and durations in the last few seconds, by route, backend or endpoint.
    Top(top::TopArgs),
    /// Show backend endpoints as Envoy sees them: connections, waiting requests, failures.
    Endpoints(endpoints::EndpointsArgs),
    /// Show this host's events: configurations applied or rejected, Envoy starts and failures,
    /// certificate changes, and problems with the configuration source.
    Events(events::EventsArgs),
    /// List the configurations that Envoy has accepted.
    History(history::HistoryArgs),
    /// Show the objects that differ between two accepted configurations, or the requests that two
    /// directories of manifests handle differently.
    Diff(Box<history::DiffArgs>),
    /// Send the requests of an access log to two gateways, and list the answers that differ.
    Compare(Box<compare::CompareArgs>),
    /// Show how a request would be routed, and why, without sending it: listener, virtual host,
    /// route, filters, backends.
    Explain(Box<explain::ExplainArgs>),
    /// Explain where an object is served, or why it is not.
    Why(Box<why::WhyArgs>),
    /// Make the agent reload its settings, like SIGHUP.
    Reload,
    /// Return to an accepted configuration, and keep it until `resume`.
    Rollback(history::RollbackArgs),
    /// Follow the source again after a rollback.
    Resume,
    /// List the certificates and trust bundles that Envoy uses: names, issuer, expiry, origin and
    /// use.
    #[command(alias = "certificates")]
    Certs(certs::CertsArgs),
    /// Check whether this host is fit to serve, and show how to fix problems.
    Doctor(doctor::DoctorArgs),
    /// Collect the data for a bug report into one file, without keys or tokens.
    Collect(collect::CollectArgs),
    /// Apply a revision that was held because it removes too much, or drains connections.
    Accept,
    /// Join a cluster from outside with a token from `sesame-controller hosts token`.
    #[cfg(feature = "cluster")]
    Join(Box<join::JoinArgs>),
    /// Leave the cluster that this host has joined.
    #[cfg(feature = "cluster")]
    Leave(leave::LeaveArgs),
    /// Store this host's credentials.
    #[cfg(feature = "cluster")]
    #[command(hide = true)]
    StoreCredentials(store_credentials::StoreArgs),
    /// Pass a bundle to the running agent, and wait until Envoy has accepted it.
    Apply(apply::ApplyArgs),
    /// Create, sign, check and compare bundles: signed files for hosts without a network
    /// connection.
    #[command(subcommand)]
    Bundle(bundle::BundleCommand),
    /// Print this host's public key, with which private keys in bundles are encrypted; create the
    /// key pair if it does not exist.
    Identity(identity::IdentityArgs),
    /// Manage the public keys that may sign bundles for this host.
    #[command(subcommand)]
    Trust(trust::TrustCommand),
    /// Print this program's version and source revision.
    Version(version::VersionArgs),
    /// Start Envoy for an agent in another container or unit, and stop it when this process is
    /// stopped.
    Launcher(launcher::LauncherArgs),
    /// Make the agent's user the owner of directories that were created as root.
    Own(own::OwnArgs),
    /// Create a key that seals private keys at rest; systemd encrypts it for this host and passes
    /// it to the agent.
    #[command(hide = true)]
    SealKey(seal::SealKeyArgs),
    /// Start an Envoy that outlives the agent.
    #[command(hide = true)]
    LaunchEnvoy(launch::LaunchArgs),
    /// Write the manual pages, one for each command.
    #[command(hide = true)]
    Man(manual::ManArgs),
    /// Print the shell completion script.
    #[command(hide = true)]
    Completion(manual::CompletionArgs),
}

impl Command {
    fn needs_settings(&self, config: &ConfigArgs) -> bool {
        let serves = matches!(self, Self::Run(_) | Self::Launcher(_) | Self::Render(_));
        serves || (matches!(self, Self::Validate(_)) && !self.reports_settings(config))
    }

    fn reports_settings(&self, config: &ConfigArgs) -> bool {
        match self {
            Self::Validate(args) => args.is_of_settings(config),
            Self::Doctor(_) | Self::Collect(_) => true,
            _ => false,
        }
    }
}

/// Returns the program's commands and options.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses the arguments, executes the command, and returns the exit code.
pub fn main(revision: Option<&'static str>) -> ExitCode {
    let version = ProgramVersion::of(revision);
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let loaded = settings::load(&arguments);
    let parsed = options::parse_with(arguments.clone(), &loaded.accepted);
    let cli = parsed.unwrap_or_else(|error| {
        // The settings file may cause the error, for example if two settings conflict.
        if error.use_stderr() {
            record_settings(&loaded);
        }
        if !loaded.faults.is_empty() && error.kind() == ErrorKind::MissingRequiredArgument {
            std::process::exit(EXIT_USAGE.into());
        }
        if error.kind() == ErrorKind::DisplayVersion {
            let printed = output::text(&version.to_string());
            std::process::exit(printed.map_or(EXIT_FAILED, |()| 0).into());
        }
        error.exit()
    });
    if let Err(error) = loaded.check() {
        if !cli.command.reports_settings(&cli.config) {
            output::error(&error.into());
        }
        if cli.command.needs_settings(&cli.config) {
            return ExitCode::from(EXIT_USAGE);
        }
    }
    let set_log = match cli.logging.start() {
        Ok(set_log) => set_log,
        Err(error) => {
            output::error(&error);
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let reader = SettingsReader { arguments, set_log };
    match execute(cli, &loaded, reader, &version) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            output::error(&error);
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn execute(
    cli: Cli,
    loaded: &LoadedSettings,
    reader: SettingsReader,
    version: &ProgramVersion,
) -> anyhow::Result<u8> {
    let Cli {
        agent,
        logging: _,
        config,
        command,
    } = cli;
    match command {
        Command::Run(args) => run::main(*args, reader),
        Command::Render(args) => render::main(&args),
        Command::Validate(args) => validate::main(&agent, &args, &config, loaded),
        Command::Status(args) => status::main(&agent, &args),
        Command::Restart(args) => restart::main(&agent, &args),
        Command::Drain(args) => drain::main(&agent, &args),
        Command::Logs(args) => logs::main(&agent, &args),
        Command::Top(args) => top::main(&agent, &args),
        Command::Endpoints(args) => endpoints::main(&agent, &args),
        Command::Events(args) => events::main(&agent, &args),
        Command::History(args) => history::history(&agent, &args),
        Command::Diff(args) => history::diff(&agent, &args),
        Command::Compare(args) => compare::main(&agent, &args),
        Command::Explain(args) => explain::main(&agent, &args),
        Command::Why(args) => why::main(&agent, &args),
        Command::Rollback(args) => history::rollback(&agent, &args),
        Command::Certs(args) => certs::main(&agent, &args),
        Command::Doctor(args) => doctor::main(&agent, &args, loaded),
        Command::Collect(args) => collect::main(&agent, &args, loaded),
        Command::Reload => reload::main(&agent),
        Command::Resume => agent::command(&agent, InstanceCommand::Resume),
        Command::Accept => agent::command(&agent, InstanceCommand::Accept),
        #[cfg(feature = "cluster")]
        Command::Join(args) => join::main(&agent, &args, loaded),
        #[cfg(feature = "cluster")]
        Command::Leave(args) => leave::main(&agent, &args, loaded),
        #[cfg(feature = "cluster")]
        Command::StoreCredentials(args) => store_credentials::store(&agent, &args, loaded),
        Command::Apply(args) => apply::main(&agent, &args),
        Command::Bundle(command) => bundle::main(&command),
        Command::Identity(args) => identity::main(&args, loaded),
        Command::SealKey(args) => seal::main(&args),
        Command::Trust(command) => trust::main(&command),
        Command::Version(args) => version::main(&args, version),
        Command::Launcher(args) => launcher::main(&args),
        Command::Own(args) => own::main(&args),
        Command::LaunchEnvoy(args) => launch::main(&args),
        Command::Man(args) => manual::man(&args),
        Command::Completion(args) => manual::completion(&args),
    }
}

/// Returns true if these arguments are valid.
pub fn understands<'a>(arguments: impl Iterator<Item = &'a str>) -> bool {
    options::parse(arguments).is_ok()
}

fn record_settings(loaded: &LoadedSettings) {
    if let Err(error) = loaded.check() {
        output::error(&error.into());
    } else if let Some(path) = loaded.path.as_ref().filter(|_| !loaded.accepted.is_empty()) {
        output::note(&format!("the settings in {} also apply", path.display()));
    }
}
