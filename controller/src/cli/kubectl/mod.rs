//! `kubectl sesame`: shows the state of a cluster's Gateways. It runs with the caller's permissions
//! and writes nothing to the cluster except the commands of `rollout`.

mod access;
mod adopt;
mod complete;
mod diff;
mod hosts;
mod reading;
mod replay;
mod rollout;
mod status;
mod table;
mod why;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde::Serialize;
use sesame_explain::{Explainer, TextDetail, explain_any, text};
use sesame_kinds::api::{CONTROLLER_NAME, NamespacedName};
use sesame_proto::terminal::plain;
use sesame_published::names::DEFAULT_NAMESPACE;

use self::reading::ClusterReader;
use super::explain::RequestArgs;
use super::hosts::{gateway, namespace};

pub(super) use self::complete::{COMPLETION_NAME, complete};

pub(super) const PLUGIN_NAME: &str = "kubectl-sesame";

const EVERY: Duration = Duration::from_secs(2);

/// Shows how Gateways and their routes are served, using your own permissions in the cluster.
#[derive(Debug, Parser)]
#[command(name = PLUGIN_NAME, bin_name = "kubectl sesame", version)]
pub(super) struct PluginCli {
    #[command(flatten)]
    cluster: PluginArgs,
    #[command(subcommand)]
    command: PluginCommand,
}

/// Options shared by all commands.
#[derive(Clone, Debug, Args)]
pub(super) struct PluginArgs {
    /// Namespace for the objects; defaults to the context's namespace.
    #[arg(long, short, global = true)]
    namespace: Option<String>,
    /// Show objects in all namespaces.
    #[arg(long, short = 'A', global = true)]
    all_namespaces: bool,
    /// Kubeconfig context to use.
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// Kubeconfig; by default $KUBECONFIG, or ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace in which the controller publishes.
    #[arg(long, global = true, env = "SESAME_NAMESPACE", default_value = DEFAULT_NAMESPACE, value_name = "NAMESPACE", value_parser = namespace)]
    published_in: String,
    /// The controller's name in GatewayClasses.
    #[arg(
        long,
        global = true,
        default_value = CONTROLLER_NAME,
        value_name = "NAME"
    )]
    controller_name: String,
    /// Output format.
    #[arg(long, short, global = true, value_enum, default_value_t)]
    output: PluginFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum PluginFormat {
    /// Human-readable table.
    #[default]
    Table,
    /// The same table with more columns.
    Wide,
    /// JSON for scripts.
    Json,
    /// The same content as YAML.
    Yaml,
    /// Only names, for other kubectl commands; supported by `status` and `hosts`.
    Name,
}

#[derive(Debug, Subcommand)]
enum PluginCommand {
    /// Show Gateways, the hosts that serve them, and problems; exit with 1 if there are problems.
    Status(WatchedArgs),
    /// Show the hosts that serve Gateways, according to their own reports.
    Hosts(WatchedArgs),
    /// Show how a request would be routed, and why, without sending it; exit with 1 if no route
    /// matches.
    Explain(AnyRequestArgs),
    /// Show which Gateways serve an object, and its conditions; exit with 1 if it has problems.
    Why(why::ObjectArgs),
    /// Show which checks protect each rule, and which rules are exempt from a check.
    Access(access::AccessArgs),
    /// Show which requests would be handled differently if these objects were applied, and if
    /// `spec.ingress.watch` were `Serve` instead of `Report`; exit with 1 if any would be.
    Diff(diff::ManifestArgs),
    /// Show which hosts of other controllers' Ingresses, HTTPProxies and routes could move to
    /// Sesame, and their losses; exit with 1 if there are any. With hosts, print
    /// the objects that move them.
    Adopt(adopt::AdoptArgs),
    /// Show or control the staged rollout of a Gateway's newest revision.
    #[command(subcommand)]
    Rollout(rollout::RolloutCommand),
    /// Print the shell completion script for `kubectl-sesame`.
    Completion {
        /// Shell.
        shell: Shell,
    },
}

/// Options for commands that can watch for changes.
#[derive(Debug, Args)]
pub(super) struct WatchedArgs {
    /// Show only this Gateway.
    #[arg(value_name = "GATEWAY")]
    name: Option<String>,
    /// Print the result again whenever it changes.
    #[arg(long, short)]
    watch: bool,
    /// Omit the table headings.
    #[arg(long)]
    no_headers: bool,
}

#[derive(Debug, Args)]
struct AnyRequestArgs {
    /// Gateway that receives the request; defaults to the Gateway that listens on the URL's port.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = gateway)]
    gateway: Option<NamespacedName>,
    #[command(flatten)]
    request: RequestArgs,
}

/// Returns the plugin's commands and options.
pub fn plugin_command() -> clap::Command {
    PluginCli::command()
}

pub(super) fn main() -> ExitCode {
    super::exit_code(run(PluginCli::parse()))
}

/// Returns false if the command found problems or differences.
fn run(cli: PluginCli) -> Result<bool> {
    let PluginCli { cluster, command } = cli;
    if let PluginCommand::Completion { shell } = command {
        let mut bytes = Vec::new();
        let mut command = PluginCli::command().bin_name(PLUGIN_NAME);
        clap_complete::generate(shell, &mut command, PLUGIN_NAME, &mut bytes);
        return super::output(&bytes).map(|()| true);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let reader = ClusterReader::open(&cluster).await?;
        match command {
            PluginCommand::Status(args) => {
                let read = async || status::read(&reader, args.name.as_deref()).await;
                let text = |all: &Vec<_>, wide| status::text(all, wide, !args.no_headers);
                let is_well =
                    |all: &Vec<status::GatewayRow>| all.iter().all(|row| row.problems.is_empty());
                let names = |all: &Vec<_>| status::names(all);
                show(&reader, args.watch, read, text, names, is_well).await
            }
            PluginCommand::Hosts(args) => {
                let read = async || hosts::read(&reader, args.name.as_deref()).await;
                let text = |all: &Vec<_>, wide| hosts::text(all, wide, !args.no_headers);
                let names = |all: &Vec<_>| hosts::names(all);
                show(&reader, args.watch, read, text, names, |_| true).await
            }
            PluginCommand::Explain(args) => explain(&reader, &args).await,
            PluginCommand::Why(args) => why::main(&reader, &args).await,
            PluginCommand::Access(args) => access::main(&reader, &args).await,
            PluginCommand::Diff(args) => diff::main(&reader, &args).await,
            PluginCommand::Adopt(args) => adopt::main(&reader, &args).await,
            PluginCommand::Rollout(command) => rollout::main(&reader, &command).await,
            PluginCommand::Completion { .. } => Ok(true),
        }
    })
}

/// With `watch`, runs until the output is closed.
async fn show<T: Serialize + PartialEq>(
    reader: &ClusterReader,
    watch: bool,
    read: impl AsyncFn() -> Result<T>,
    text: impl Fn(&T, bool) -> String,
    names: impl Fn(&T) -> String,
    is_well: impl Fn(&T) -> bool,
) -> Result<bool> {
    let mut shown = None;
    let mut last_error = None;
    loop {
        match read().await {
            Ok(found) => {
                last_error = None;
                if shown.as_ref() != Some(&found) {
                    let is_read =
                        reader.print_rows(&found, |wide| text(&found, wide), || names(&found))?;
                    if !watch || !is_read {
                        return Ok(is_well(&found));
                    }
                }
                shown = Some(found);
            }
            // A temporary API server outage does not end a watch.
            Err(error) if watch && shown.is_some() => {
                let error = format!("{error:#}");
                if last_error.as_ref() != Some(&error) {
                    eprint_plain(&error);
                }
                last_error = Some(error);
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn eprint_plain(message: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "error: {}", plain(message));
}

async fn explain(reader: &ClusterReader, args: &AnyRequestArgs) -> Result<bool> {
    let AnyRequestArgs { gateway, request } = args;
    let request = request.parse()?;
    let explanation = if let Some(gateway) = gateway {
        Explainer::new(&reader.published(gateway).await?).explain(&request)
    } else {
        let snapshots = reader.all_published().await?;
        explain_any(&snapshots.iter().collect::<Vec<_>>(), &request)?
    };
    reader.print(&explanation, |wide| {
        let detail = if wide {
            TextDetail::AllRoutes
        } else {
            TextDetail::Brief
        };
        text(&explanation, detail)
    })?;
    Ok(explanation.route.is_some())
}
