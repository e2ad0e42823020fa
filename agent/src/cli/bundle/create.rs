//! `sesame-agent bundle create`: a bundle of one Gateway of manifests.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::Timestamp;
use sesame_files::bundle::{self, BundleOrder, SUFFIX};
use sesame_gateway_api::api::NamespacedName;
use sesame_proto::bundle::BundleLabel;
use sesame_proto::bundle::sealed::HostKey;

use super::inspect::BundleSummary;
use crate::cli::EXIT_WRONG;
use crate::cli::host::HostArgs;
use crate::cli::offline;
use crate::cli::output::Format;
use crate::cli::render::gateway_name;

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Directory of Gateway API manifests.
    #[arg(long, env = "SESAME_MANIFESTS", value_name = "DIR")]
    manifests: PathBuf,
    #[command(flatten)]
    host: HostArgs,
    /// Gateway that the bundle is of.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = gateway_name)]
    gateway: NamespacedName,
    /// File to write, named *.bundle.
    #[arg(short = 'o', long = "file", value_name = "FILE")]
    file: PathBuf,
    /// File of Ed25519 private keys (PEM, PKCS#8), each of which signs.
    #[arg(long, value_name = "FILE")]
    signing_key: PathBuf,
    /// Encrypt the Gateway's private keys to this host, as `sesame-agent identity` prints its public key; repeatable.
    /// Without any, private keys are left out.
    #[arg(long = "recipient", value_name = "KEY")]
    recipients: Vec<HostKey>,
    /// Do so for every host in this file, too: a key a line; text after # is passed over.
    #[arg(long, value_name = "FILE")]
    recipients_file: Option<PathBuf>,
    /// Sequence number, which has to be higher than that of the bundle before; milliseconds since 1970 by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    sequence: Option<u64>,
    /// Time at which the bundle says that it was made; now by default. With this, --sequence and no recipients the same
    /// input gives the same bytes.
    #[arg(long, value_name = "TIME")]
    created: Option<Timestamp>,
    /// Name of who made the bundle, for people.
    #[arg(long, value_name = "TEXT", default_value = "")]
    creator: String,
    /// Description of what it is made from, for people; the directory of manifests by default.
    #[arg(long, value_name = "TEXT")]
    origin: Option<String>,
    /// Format of the answer.
    #[arg(long, default_value = "table")]
    output: Format,
}

pub(crate) fn main(args: &CreateArgs) -> anyhow::Result<u8> {
    let CreateArgs {
        manifests,
        host,
        gateway,
        file,
        signing_key,
        recipients,
        recipients_file,
        sequence: _,
        created: _,
        creator: _,
        origin: _,
        output: format,
    } = args;
    if !file.to_str().is_some_and(|name| name.ends_with(SUFFIX)) {
        bail!(
            "-o {}: a host looks only at files named *{SUFFIX}",
            file.display()
        );
    }
    let signing = super::signing_keys(signing_key)?;
    let mut hosts = recipients.clone();
    if let Some(path) = recipients_file {
        hosts.extend(bundle::read_recipients(path)?);
    }
    let read = offline::read(manifests, host)?;
    for problem in &read.problems {
        tracing::warn!("{}:{}: {}", problem.file, problem.line, problem.message);
    }
    let mut gateways = read.resolution.gateways.iter();
    let Some(resolved) = gateways.find(|one| one.gateway == *gateway) else {
        tracing::error!("no Gateway {gateway} is accepted; see `sesame-agent validate`");
        return Ok(EXIT_WRONG);
    };
    let bytes = bundle::make(&BundleOrder {
        label: label(args, &resolved.snapshot.gateway)?,
        snapshot: &resolved.snapshot,
        pairs: &resolved.keys,
        hosts: &hosts,
        signing: &signing,
    })?;
    bundle::write(file, &bytes).with_context(|| file.display().to_string())?;
    let names = resolved.snapshot.keys.len();
    if names > 0 && hosts.is_empty() {
        tracing::warn!(
            "the {names} private keys of the Gateway are left out; name the hosts that need them with --recipient, or put keys.pb beside the bundle there"
        );
    }
    let summary = BundleSummary::of(&bytes)?;
    format.write(&summary, || summary.text())?;
    Ok(0)
}

/// Returns the label of the bundle of this Gateway, made now unless the arguments say otherwise.
fn label(args: &CreateArgs, gateway: &str) -> anyhow::Result<BundleLabel> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let told = args.created.map(|time| u64::try_from(time.as_second()));
    Ok(BundleLabel {
        gateway: gateway.to_owned(),
        sequence: match args.sequence {
            Some(sequence) => sequence,
            None => u64::try_from(now.as_millis())?,
        },
        created: told
            .transpose()
            .context("--created")?
            .unwrap_or(now.as_secs()),
        creator: args.creator.clone(),
        origin: match &args.origin {
            Some(origin) => origin.clone(),
            None => format!("manifests {}", args.manifests.display()),
        },
    })
}
