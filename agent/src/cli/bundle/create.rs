//! `sesame-agent bundle create`: creates a bundle for one Gateway from manifests.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use sesame_files::bundle::arguments::{BundleArgs, BundleKeys};
use sesame_files::bundle::{self, BundleInputs};
use sesame_kinds::api::NamespacedName;
use sesame_resolver::Options;

use super::inspect::BundleSummary;
use crate::cli::EXIT_FAULT;
use crate::cli::host::HostArgs;
use crate::cli::offline::{self, RemoteKeys};
use crate::cli::output::Format;
use crate::cli::render::gateway_name;

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Directory of Gateway API manifests.
    #[arg(long, env = "SESAME_MANIFESTS", value_name = "DIR")]
    manifests: PathBuf,
    #[command(flatten)]
    host: HostArgs,
    /// Gateway to bundle.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = gateway_name)]
    gateway: NamespacedName,
    #[command(flatten)]
    bundle: BundleArgs,
    /// Creation time to record in the bundle; now by default. With this option, --sequence and no
    /// recipients, the same input always produces the same bytes.
    #[arg(long, value_name = "TIME")]
    created: Option<Timestamp>,
    /// Output format.
    #[arg(long, default_value = "table")]
    output: Format,
}

pub(crate) fn main(args: &CreateArgs) -> anyhow::Result<u8> {
    let CreateArgs {
        manifests,
        host,
        gateway,
        bundle: wanted,
        created,
        output: format,
    } = args;
    let BundleKeys { signing, hosts } = wanted.keys()?;
    let options = Options {
        // Without recipients, hosts read credentials from a `keys.pb` that has no salts.
        salt_key: (!hosts.is_empty()).then(|| signing.salt_key()),
        ..host.resolve_options()
    };
    let read = offline::resolve_dir(manifests, host, &options, RemoteKeys::Fetched)?;
    for problem in &read.problems {
        tracing::warn!("{}:{}: {}", problem.file, problem.line, problem.message);
    }
    let mut gateways = read.resolution.gateways.iter();
    let Some(resolved) = gateways.find(|one| one.gateway == *gateway) else {
        tracing::error!(
            "Gateway {gateway} does not exist or is not accepted; see `sesame-agent validate`"
        );
        return Ok(EXIT_FAULT);
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let from = format!("manifests {}", manifests.display());
    let mut label = wanted.label(&resolved.snapshot.gateway, now, from);
    if let Some(time) = created {
        label.created = u64::try_from(time.as_second()).context("--created")?;
    }
    let bytes = bundle::make(&BundleInputs {
        label,
        snapshot: &resolved.snapshot,
        pairs: &resolved.keys,
        hosts: &hosts,
        signing: &signing,
    })?;
    let file = &wanted.file;
    bundle::write(file, &bytes).with_context(|| file.display().to_string())?;
    let names = resolved.keys.len();
    if names > 0 && hosts.is_empty() {
        tracing::warn!(
            "the bundle omits the Gateway's {names} private keys; specify the hosts that need them with --recipient, or put keys.pb next to the bundle on those hosts"
        );
    }
    let summary = BundleSummary::of(&bytes)?;
    format.write(&summary, || summary.text())?;
    Ok(0)
}
