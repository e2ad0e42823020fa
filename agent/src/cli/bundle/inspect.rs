//! `sesame-agent bundle show` and `verify`: print or verify a bundle.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use sesame_proto::bundle::BundleFile;
use sesame_proto::bundle::sealed;
use sesame_proto::schema::Snapshot;
use sesame_proto::signature::{self, TrustedKeys};

use crate::cli::EXIT_FAULT;
use crate::cli::output::Format;
use crate::cli::source::read_trusted;
use sesame_engine::DEFAULT_STATE_DIR;
use sesame_sources::bundles::state::BundleState;

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The bundle.
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    /// Output format.
    #[arg(long, short, default_value = "table")]
    output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The bundle.
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    /// File with a trusted public key (PEM, Ed25519); repeatable. By default, the keys that
    /// `sesame-agent trust` stores in the state directory.
    #[arg(
        long = "trusted-key",
        env = "SESAME_TRUSTED_KEYS",
        value_delimiter = ',',
        value_name = "FILE"
    )]
    trusted_keys: Vec<PathBuf>,
    /// State directory of the agent.
    #[arg(long, env = "SESAME_STATE_DIR", default_value = DEFAULT_STATE_DIR, value_name = "DIR")]
    state_dir: PathBuf,
    /// Number of different trusted keys that must have signed the bundle.
    #[arg(long, env = "SESAME_REQUIRE_SIGNERS", default_value_t = 1, value_name = "K", value_parser = clap::value_parser!(u8).range(1..=8))]
    require_signers: u8,
    /// Output format.
    #[arg(long, short, default_value = "table")]
    output: Format,
}

/// Unverified content of a bundle.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BundleSummary {
    gateway: String,
    sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<Timestamp>,
    creator: String,
    origin: String,
    digest: String,
    revision: String,
    bytes: usize,
    signed_by: Vec<String>,
    keys: KeySummary,
    listeners: Vec<String>,
    virtual_hosts: usize,
    routes: usize,
    backends: usize,
    endpoints: usize,
    trust_bundles: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct KeySummary {
    named: Vec<String>,
    /// `None` if the bundle contains no private keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    hosts: Option<usize>,
}

impl BundleSummary {
    /// The bundle may come from an untrusted source, so the size limits apply.
    pub(super) fn of(bytes: &[u8]) -> anyhow::Result<Self> {
        let file = BundleFile::read(bytes)?;
        let snapshot = file.snapshot()?;
        Self::of_file(&file, &snapshot, bytes.len())
    }

    fn of_file(file: &BundleFile<'_>, snapshot: &Snapshot, bytes: usize) -> anyhow::Result<Self> {
        let label = file.label().clone();
        let hosts = snapshot.route_tables.iter();
        let hosts: Vec<_> = hosts.flat_map(|table| &table.virtual_hosts).collect();
        let keys = snapshot.keys.iter();
        let listeners = snapshot.ports.iter().flat_map(|port| {
            let listeners = port.listeners.iter();
            listeners.map(|one| format!("{} (port {})", one.name, port.port))
        });
        let created = i64::try_from(label.created).ok().filter(|time| *time > 0);
        Ok(Self {
            gateway: label.gateway,
            sequence: label.sequence,
            created: created.and_then(|time| Timestamp::from_second(time).ok()),
            creator: label.creator,
            origin: label.origin,
            digest: file.digest(),
            revision: file.manifest().revision.clone(),
            bytes,
            signed_by: signature::signers(file.signatures()),
            keys: KeySummary {
                named: keys
                    .map(|key| format!("{} {}", key.name, key.digest))
                    .collect(),
                hosts: file.keys().map(sealed::host_count).transpose()?,
            },
            listeners: listeners.collect(),
            virtual_hosts: hosts.len(),
            routes: hosts.iter().map(|host| host.routes.len()).sum(),
            backends: snapshot.backends.len(),
            endpoints: snapshot
                .endpoints
                .iter()
                .map(|set| set.endpoints.len())
                .sum(),
            trust_bundles: snapshot.trust_bundles.len(),
        })
    }

    pub(super) fn text(&self) -> String {
        let Self {
            gateway,
            sequence,
            created,
            creator,
            origin,
            digest,
            revision,
            bytes,
            signed_by,
            keys,
            listeners,
            virtual_hosts,
            routes,
            backends,
            endpoints,
            trust_bundles,
        } = self;
        let created = created.map(|time| time.to_string()).unwrap_or_default();
        let hosts = match (keys.named.len(), keys.hosts) {
            (0, _) => "none needed".to_owned(),
            (names, None) => format!("{names}, left out"),
            (names, Some(hosts)) => format!("{names}, encrypted to {hosts} hosts"),
        };
        let mut text = String::new();
        for (name, value) in [
            ("gateway", gateway.clone()),
            ("sequence", sequence.to_string()),
            ("created", created),
            ("creator", creator.clone()),
            ("origin", origin.clone()),
            ("digest", digest.clone()),
            ("revision", revision.clone()),
            ("bytes", bytes.to_string()),
            ("signed by", signed_by.join(", ")),
            ("private keys", hosts),
            ("listeners", listeners.join(", ")),
            (
                "routes",
                format!("{routes} in {virtual_hosts} virtual hosts"),
            ),
            ("backends", format!("{backends} with {endpoints} endpoints")),
            ("CA bundles", trust_bundles.to_string()),
        ] {
            if !value.is_empty() {
                let _ = writeln!(text, "{name:<13} {value}");
            }
        }
        text
    }
}

pub(super) fn show(args: &ShowArgs) -> anyhow::Result<u8> {
    let bytes = super::read(&args.bundle)?;
    match BundleSummary::of(&bytes) {
        Ok(summary) => {
            args.output.write(&summary, || summary.text())?;
            Ok(0)
        }
        Err(error) => {
            tracing::error!("{}: {error:#}", args.bundle.display());
            Ok(EXIT_FAULT)
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct VerifyAnswer {
    valid: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    signers: Vec<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    summary: Option<BundleSummary>,
}

pub(super) fn verify(args: &VerifyArgs) -> anyhow::Result<u8> {
    let trusted = if args.trusted_keys.is_empty() {
        if !args.state_dir.join("bundles").is_dir() {
            anyhow::bail!(
                "no trusted key: pass one with --trusted-key, or the --state-dir of an agent that trusts one"
            );
        }
        BundleState::open(&args.state_dir)?.trusted()?
    } else {
        read_trusted(&args.trusted_keys)?
    };
    let bytes = super::read(&args.bundle)?;
    let answer = match judge(&bytes, &trusted, args.require_signers.into()) {
        Ok(answer) => answer,
        Err(error) => VerifyAnswer {
            valid: false,
            reason: format!("{error:#}"),
            signers: Vec::new(),
            summary: None,
        },
    };
    let place = args.bundle.display();
    args.output.write(&answer, || match &answer.summary {
        Some(summary) => format!(
            "{place}: valid, signed by {}\n{}",
            answer.signers.join(", "),
            summary.text()
        ),
        None => format!("{place}: {}\n", answer.reason),
    })?;
    Ok(if answer.valid { 0 } else { EXIT_FAULT })
}

fn judge(bytes: &[u8], trusted: &TrustedKeys, required: usize) -> anyhow::Result<VerifyAnswer> {
    let file = BundleFile::read(bytes)?;
    if trusted.is_empty() {
        anyhow::bail!(
            "no trusted key; pass one with --trusted-key or add one with `sesame-agent trust add`"
        );
    }
    let good = file.verify(trusted, required)?;
    let snapshot = file
        .snapshot()
        .context("cannot decode the signed content")?;
    Ok(VerifyAnswer {
        valid: true,
        reason: String::new(),
        signers: good.signers,
        summary: Some(BundleSummary::of_file(&file, &snapshot, bytes.len())?),
    })
}
