//! `sesame-controller hosts`: invites, lists and revokes hosts outside the cluster.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand, ValueEnum};
use comfy_table::{Table, presets};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use sesame_kinds::api::NamespacedName;
use sesame_proto::dns_name::{is_dns_label, is_dns_subdomain, is_label_value};
use sesame_published::host_access::HostScope;
use sesame_published::names::{DEFAULT_NAMESPACE, is_host_name};

use crate::hosts::{self, Cluster, HostAccess, HostRow, Invitation, Invited};

/// API servers reject shorter lifetimes.
const SHORTEST: SignedDuration = SignedDuration::from_mins(10);
const LONGEST_TTL: SignedDuration = SignedDuration::from_hours(7 * 24);
const LONGEST_LIFETIME: SignedDuration = SignedDuration::from_hours(366 * 24);

#[derive(Debug, Args)]
pub(super) struct HostsArgs {
    #[command(flatten)]
    at: ClusterLocation,
    /// Output format
    #[arg(long, short, global = true, value_enum, default_value_t)]
    output: Output,
    #[command(subcommand)]
    command: HostsCommand,
}

/// Connection to the cluster.
#[derive(Debug, Args)]
pub(super) struct ClusterLocation {
    /// Kubeconfig for the API server; by default $KUBECONFIG, ~/.kube/config, or the Pod's ServiceAccount.
    #[arg(long, global = true, env = "SESAME_KUBECONFIG", value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Namespace in which the controller publishes
    #[arg(
        long,
        global = true,
        env = "POD_NAMESPACE",
        value_name = "NAMESPACE",
        default_value = DEFAULT_NAMESPACE,
        value_parser = namespace
    )]
    pub(super) namespace: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Human-readable table
    #[default]
    Table,
    /// JSON for scripts
    Json,
}

#[derive(Debug, Subcommand)]
enum HostsCommand {
    /// Invite a host: print a secret token for a single `sesame-agent join`. Also removes
    /// invitations that expired more than a day ago.
    Token(Box<TokenArgs>),
    /// List all hosts: joined hosts, invited hosts, and nodes that report.
    List,
    /// Revoke a host's access and remove its reports. The host keeps serving its current
    /// configuration.
    Revoke {
        /// Name of the host
        #[arg(value_name = "NAME", value_parser = host_name)]
        host: String,
    },
}

#[derive(Debug, Args)]
struct TokenArgs {
    /// Gateway that the host may serve; repeatable
    #[arg(
        long = "gateway",
        value_delimiter = ',',
        value_name = "NAMESPACE/NAME",
        value_parser = gateway,
        required_unless_present = "fleet",
        conflicts_with = "fleet"
    )]
    gateways: Vec<NamespacedName>,
    /// Fleet whose current and future Gateways the host may serve
    #[arg(long, value_name = "NAME", value_parser = fleet)]
    fleet: Option<String>,
    /// Name of the host [default: generated]
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    host: Option<String>,
    /// Time limit for joining: 10m to 168h
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    ttl: SignedDuration,
    /// Lifetime of the host's credentials: 10m to 8784h; the API server may shorten it. Hosts renew
    /// credentials at half their lifetime; a host whose credentials expire needs a new token
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "720h",
        value_parser = duration
    )]
    lifetime: SignedDuration,
    /// URL at which the host reaches the API server [default: the URL in the kubeconfig]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Invite the host even if it has already joined; this revokes its current access
    #[arg(long, requires = "host")]
    replace: bool,
}

pub(super) fn main(args: HostsArgs) -> Result<()> {
    let HostsArgs {
        at,
        output,
        command,
    } = args;
    let ClusterLocation {
        kubeconfig,
        namespace,
    } = at;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let cluster = async || Cluster::open(kubeconfig, namespace).await;
        match command {
            HostsCommand::Token(args) => {
                let invitation = args.invitation()?;
                let cluster = cluster().await?;
                let invited = hosts::invite(&cluster, &invitation).await?;
                show_invited(&invited, output)?;
                // An error here must not hide the token, which has already been issued.
                match hosts::remove_expired(&cluster).await {
                    Ok(hosts) => print_removed(&hosts),
                    Err(error) => {
                        print_note(&format!("cannot remove expired invitations: {error}"));
                    }
                }
                Ok(())
            }
            HostsCommand::List => show_hosts(&hosts::list(&cluster().await?).await?, output),
            HostsCommand::Revoke { host } => {
                hosts::revoke(&cluster().await?, &host).await?;
                let message = format!(
                    "host {host}: access revoked; it keeps serving its current \
                    configuration\n"
                );
                match output {
                    Output::Table => print(&message),
                    Output::Json => print(&format!("{}\n", json!({"host": host, "revoked": true}))),
                }
            }
        }
    })
}

impl TokenArgs {
    fn invitation(self) -> Result<Invitation> {
        let Self {
            gateways,
            fleet,
            host,
            ttl,
            lifetime,
            server,
            replace,
        } = self;
        for (name, value, longest) in [
            ("ttl", ttl, LONGEST_TTL),
            ("lifetime", lifetime, LONGEST_LIFETIME),
        ] {
            ensure!(
                (SHORTEST..=longest).contains(&value),
                "--{name} {value:#}: expected {SHORTEST:#} to {longest:#}"
            );
        }
        Ok(Invitation {
            host: host.unwrap_or_else(made_up),
            scope: match fleet {
                Some(fleet) => HostScope::Fleet(fleet),
                None => HostScope::Gateways(gateways),
            },
            ttl,
            lifetime,
            server,
            replace,
        })
    }
}

fn made_up() -> String {
    let now = Timestamp::now().as_nanosecond();
    let digest = sesame_proto::digest::sha256(format!("{now} {}", std::process::id()).as_bytes());
    format!("host-{}", digest.get(..10).unwrap_or_default())
}

fn show_invited(invited: &Invited, output: Output) -> Result<()> {
    let Invited { token, expires } = invited;
    let text = token.encode();
    let (gateways, fleet) = match &token.scope {
        HostScope::Gateways(all) => (all.iter().map(ToString::to_string).collect(), None),
        HostScope::Fleet(fleet) => (Vec::new(), Some(fleet)),
    };
    match output {
        Output::Json => {
            let answer = json!({
                "host": token.host, "server": token.server, "gateways": gateways, "fleet": fleet,
                "expires": expires, "token": text,
            });
            print(&format!("{answer:#}\n"))
        }
        Output::Table => {
            // Print only the token to standard output, for use in pipes.
            let _ = writeln!(
                std::io::stderr().lock(),
                "Host {} may join until {expires}, once. On the host, with the token on standard input:\n\
                 sesame-agent join --token-file -",
                token.host
            );
            print(&format!("{text}\n"))
        }
    }
}

fn show_hosts(rows: &[HostRow], output: Output) -> Result<()> {
    match output {
        Output::Json => print(&format!("{}\n", serde_json::to_string_pretty(rows)?)),
        Output::Table if rows.is_empty() => print("no hosts\n"),
        Output::Table => print(&table(rows, Timestamp::now())),
    }
}

fn table(rows: &[HostRow], now: Timestamp) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "HOST",
        "ACCESS",
        "SERVES",
        "STATE",
        "ADDRESSES",
        "ZONE",
        "AGENT",
        "ENVOY",
        "CORES",
        "MEMORY",
        "LAST REPORT",
    ]);
    for row in rows {
        table.add_row(cells(row, now));
    }
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n") + "\n"
}

fn cells(row: &HostRow, now: Timestamp) -> [String; 11] {
    let HostRow {
        host,
        access,
        expires: _,
        fleet,
        gateways,
        state,
        addresses,
        zone,
        agent_version,
        envoy_version,
        cores,
        memory_mib,
        last_report,
    } = row;
    let list = |all: &BTreeSet<String>| all.iter().cloned().collect::<Vec<_>>().join(",");
    let or_dash = |text: String| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
    let serves = match fleet {
        Some(fleet) if gateways.is_empty() => format!("fleet {fleet}"),
        _ => list(gateways),
    };
    [
        host.clone(),
        match access {
            HostAccess::Joined => "joined",
            HostAccess::Invited => "invited",
            HostAccess::InvitationExpired => "invitation expired",
            HostAccess::Other => "-",
        }
        .to_owned(),
        or_dash(serves),
        state.map_or_else(|| "-".to_owned(), |state| state.to_string()),
        or_dash(list(addresses)),
        or_dash(zone.clone()),
        or_dash(agent_version.clone()),
        or_dash(envoy_version.clone()),
        or_dash(if *cores == 0 {
            String::new()
        } else {
            cores.to_string()
        }),
        if *memory_mib == 0 {
            "-".to_owned()
        } else {
            format!("{memory_mib} MiB")
        },
        last_report.map_or_else(|| "-".to_owned(), |at| age(now.duration_since(at))),
    ]
}

fn age(passed: SignedDuration) -> String {
    let seconds = passed.as_secs().max(0);
    match seconds {
        0..=119 => format!("{seconds}s ago"),
        120..=7199 => format!("{}m ago", seconds / 60),
        7200..=172_799 => format!("{}h ago", seconds / 3600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

fn print_removed(hosts: &[String]) {
    if !hosts.is_empty() {
        print_note(&format!(
            "removed invitations that expired more than a day ago: {}",
            hosts.join(", ")
        ));
    }
}

fn print_note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "note: {text}");
}

fn print(text: &str) -> Result<()> {
    super::output(text.as_bytes())
}

pub(super) fn namespace(text: &str) -> Result<String, String> {
    let legal = is_dns_label(text);
    legal
        .then(|| text.to_owned())
        .ok_or_else(|| "expected at most 63 lowercase letters, digits and `-`".to_owned())
}

pub(super) fn gateway(text: &str) -> Result<NamespacedName, String> {
    let parts = text.split_once('/');
    let legal = parts.filter(|(namespace, name)| is_dns_label(namespace) && is_dns_subdomain(name));
    legal
        .map(|(namespace, name)| NamespacedName::new(namespace, name))
        .ok_or_else(|| "expected NAMESPACE/NAME of a Gateway".to_owned())
}

fn fleet(text: &str) -> Result<String, String> {
    is_label_value(text)
        .then(|| text.to_owned())
        .ok_or_else(|| "expected up to 63 letters, digits, `-`, `_` and `.`".to_owned())
}

fn host_name(text: &str) -> Result<String, String> {
    is_host_name(text).then(|| text.to_owned()).ok_or_else(|| {
        "expected up to 253 letters, digits, `-`, `_` and `.`, starting and ending with a letter or digit"
            .to_owned()
    })
}

fn duration(text: &str) -> Result<SignedDuration, String> {
    text.parse()
        .map_err(|_| "expected a duration such as 30m, 1h or 720h".to_owned())
}
