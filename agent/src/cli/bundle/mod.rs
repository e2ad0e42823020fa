//! `sesame-agent bundle`: creates, signs, verifies, shows and compares bundles offline.

mod compare;
mod create;
mod inspect;
mod sign;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Subcommand;
use sesame_files::bundle;

#[derive(Debug, Subcommand)]
pub(crate) enum BundleCommand {
    /// Create a bundle for one Gateway from manifests.
    Create(Box<create::CreateArgs>),
    /// Add signatures to a bundle, for hosts that require several signers.
    Sign(sign::SignArgs),
    /// Check, as a host would, that a bundle is complete, well-formed and signed by enough trusted
    /// keys.
    Verify(inspect::VerifyArgs),
    /// Show a bundle's metadata and content without verifying them; for that, use `verify`.
    Show(inspect::ShowArgs),
    /// Show how a bundle differs from another bundle, or from this host's last accepted
    /// configuration.
    Diff(compare::CompareArgs),
}

pub(crate) fn main(command: &BundleCommand) -> anyhow::Result<u8> {
    match command {
        BundleCommand::Create(args) => create::main(args),
        BundleCommand::Sign(args) => sign::main(args),
        BundleCommand::Verify(args) => inspect::verify(args),
        BundleCommand::Show(args) => inspect::show(args),
        BundleCommand::Diff(args) => compare::main(args),
    }
}

/// The path may be a symbolic link.
pub(super) fn read(path: &PathBuf) -> anyhow::Result<Vec<u8>> {
    let real = std::fs::canonicalize(path).with_context(|| path.display().to_string())?;
    Ok(bundle::read(&real)?)
}
