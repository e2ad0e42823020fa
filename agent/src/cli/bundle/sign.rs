//! `sesame-agent bundle sign`: adds signatures to a bundle.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use sesame_files::bundle as files;
use sesame_proto::bundle::add_signatures;

use super::inspect::BundleSummary;
use crate::cli::output::Format;

#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    /// Bundle to sign; overwritten unless -o names another file.
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    /// File with Ed25519 private keys (PEM, PKCS#8). Each key signs the bundle.
    #[arg(long, value_name = "FILE")]
    signing_key: PathBuf,
    /// File to write; by default, the bundle itself.
    #[arg(short = 'o', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Output format.
    #[arg(long, default_value = "table")]
    output: Format,
}

pub(crate) fn main(args: &SignArgs) -> anyhow::Result<u8> {
    let SignArgs {
        bundle,
        signing_key,
        file,
        output,
    } = args;
    let signing = files::read_signing_keys(signing_key)?;
    let bytes = super::read(bundle)?;
    let signed = add_signatures(&bytes, &signing);
    let signed = signed.with_context(|| bundle.display().to_string())?;
    let file = file.as_ref().unwrap_or(bundle);
    files::write(file, &signed).with_context(|| file.display().to_string())?;
    let summary = BundleSummary::of(&signed)?;
    output.write(&summary, || summary.text())?;
    Ok(0)
}
