//! `sesame-agent render`: prints the Envoy configuration for manifests.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};
use sesame_files::directory;
use sesame_files::open::{self, Rule};
use sesame_kinds::api::NamespacedName;
use sesame_proto::signature::SigningKeys;
use sesame_resolver::ResolvedGateway;

use super::host::HostArgs;
use super::offline::{self, RemoteKeys, render_options};
use super::{EXIT_FAULT, output};
use sesame_render::Rendered;
use sesame_render::dump::{self, Redact};

#[derive(Debug, Args)]
pub(crate) struct RenderArgs {
    /// Directory of Gateway API manifests.
    #[arg(long, env = "SESAME_MANIFESTS", value_name = "DIR")]
    manifests: PathBuf,
    #[command(flatten)]
    host: HostArgs,
    /// Print only this Gateway; all Gateways by default.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = gateway_name)]
    gateway: Option<NamespacedName>,
    /// Print only these resources; repeatable. All resources by default.
    #[arg(long, value_delimiter = ',', value_name = "KIND")]
    only: Vec<Part>,
    /// Output format; `pb` is a static bootstrap for `envoy --config-path`.
    #[arg(long, default_value = "yaml")]
    format: RenderFormat,
    /// Also print private keys, and write them with the snapshots.
    #[arg(long)]
    show_secrets: bool,
    /// Also write each snapshot to a directory NAMESPACE.NAME, for `run --snapshot-dir`. Private
    /// keys are left out, or written to keys.pb (mode 0600) with --show-secrets.
    #[arg(long, value_name = "DIR")]
    snapshot_dir: Option<PathBuf>,
    /// Sign these snapshots with every Ed25519 private key in this file (PEM, PKCS#8), for `run
    /// --trusted-key`.
    #[arg(long, value_name = "FILE", requires = "snapshot_dir")]
    signing_key: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Listeners,
    Routes,
    Clusters,
    Endpoints,
    Secrets,
    Bootstrap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RenderFormat {
    Yaml,
    Json,
    Pb,
}

pub(crate) fn main(args: &RenderArgs) -> anyhow::Result<u8> {
    let read = offline::read(&args.manifests, &args.host, RemoteKeys::Assumed)?;
    let gateways: Vec<&ResolvedGateway> = read
        .resolution
        .gateways
        .iter()
        .filter(|gateway| {
            args.gateway
                .as_ref()
                .is_none_or(|name| *name == gateway.gateway)
        })
        .collect();
    for problem in &read.problems {
        tracing::warn!("{}:{}: {}", problem.file, problem.line, problem.message);
    }
    if gateways.is_empty() {
        let problem = match &args.gateway {
            Some(name) => format!("Gateway {name} does not exist or is not accepted"),
            None => "there are no accepted Gateways".to_owned(),
        };
        tracing::error!("{problem}; see `sesame-agent validate`");
        return Ok(EXIT_FAULT);
    }
    if let Some(dir) = &args.snapshot_dir {
        write_snapshots(dir, args, &gateways)?;
    }
    if args.format == RenderFormat::Pb {
        return binary(args, &gateways);
    }
    let mut all = Map::new();
    for gateway in gateways {
        let options = render_options(&args.host);
        let rendered = sesame_render::render(&gateway.snapshot, &gateway.keys, &options);
        for problem in &rendered.problems {
            tracing::warn!("{problem}");
        }
        all.insert(
            gateway.gateway.to_string(),
            printable(args, &rendered, &options)?,
        );
    }
    // If there is only one Gateway, omit the level with its name.
    let only = all.values().next().filter(|_| all.len() == 1).cloned();
    let value = only.unwrap_or(Value::Object(all));
    match args.format {
        RenderFormat::Json => output::json(&value)?,
        _ => output::yaml(&value)?,
    }
    Ok(0)
}

fn write_snapshots(
    dir: &Path,
    args: &RenderArgs,
    gateways: &[&ResolvedGateway],
) -> anyhow::Result<()> {
    let keys = args.signing_key.as_deref().map(signing_keys).transpose()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let stamp = u64::try_from(now)?;
    for gateway in gateways {
        // The name is safe in a path, because resolution has checked that both parts are DNS names.
        let name = format!("{}.{}", gateway.gateway.namespace, gateway.gateway.name);
        let dir = dir.join(name);
        if args.show_secrets && !gateway.keys.is_empty() {
            directory::write_keys(&dir, &gateway.keys)?;
        }
        let signing = keys.as_ref().map(|keys| (keys, stamp));
        directory::write_signed(&dir, &gateway.snapshot, signing)?;
    }
    Ok(())
}

fn signing_keys(path: &Path) -> anyhow::Result<SigningKeys> {
    let at = || format!("--signing-key {}", path.display());
    let pem = open::read(path, Rule::Named, 64 << 10).with_context(at)?;
    SigningKeys::from_pem(&pem).with_context(at)
}

fn printable(
    args: &RenderArgs,
    rendered: &Rendered,
    options: &sesame_render::RenderOptions,
) -> anyhow::Result<Value> {
    let redact = if args.show_secrets {
        Redact::Nothing
    } else {
        Redact::PrivateKeys
    };
    let mut value = dump::resources(rendered, redact)?;
    if let Value::Object(parts) = &mut value {
        if args.only.contains(&Part::Bootstrap) {
            parts.insert(
                "bootstrap".to_owned(),
                dump::bootstrap(&sesame_render::bootstrap(options), redact)?,
            );
        }
        if !args.only.is_empty() {
            parts.retain(|name, _| {
                args.only.iter().any(|part| {
                    part.to_possible_value()
                        .is_some_and(|value| value.get_name() == name)
                })
            });
        }
    }
    Ok(value)
}

fn binary(args: &RenderArgs, gateways: &[&ResolvedGateway]) -> anyhow::Result<u8> {
    let [gateway] = gateways else {
        bail!("--format pb supports only one Gateway; select it with --gateway NAMESPACE/NAME");
    };
    if !args.only.is_empty() {
        bail!("--format pb prints the complete bootstrap; omit --only");
    }
    if !gateway.keys.is_empty() && !args.show_secrets {
        bail!("--format pb would print private keys; add --show-secrets to allow this");
    }
    let options = render_options(&args.host);
    let rendered = sesame_render::render(&gateway.snapshot, &gateway.keys, &options);
    output::bytes(&sesame_render::static_bootstrap(&rendered)?)?;
    Ok(0)
}

/// The namespace defaults to `default`.
pub(super) fn gateway_name(text: &str) -> Result<NamespacedName, String> {
    match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] if !name.is_empty() => Ok(NamespacedName::new("default", name)),
        [namespace, name] if !name.is_empty() => Ok(NamespacedName::new(namespace, name)),
        _ => Err(format!("{text:?}: expected NAMESPACE/NAME")),
    }
}
