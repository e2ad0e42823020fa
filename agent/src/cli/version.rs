//! `sesame-agent version` and `--version`: show the version and the source revision.

use std::fmt;

use clap::Args;
use serde::Serialize;

use super::output::Format;

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Output format.
    #[arg(long, short, default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProgramVersion {
    version: &'static str,
    /// `unknown` if the program was built outside its repository.
    revision: &'static str,
}

impl ProgramVersion {
    pub(super) fn of(revision: Option<&'static str>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            revision: revision
                .filter(|revision| !revision.is_empty())
                .unwrap_or("unknown"),
        }
    }
}

impl fmt::Display for ProgramVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, revision } = self;
        writeln!(f, "sesame-agent {version} (revision {revision})")
    }
}

pub(crate) fn main(args: &VersionArgs, version: &ProgramVersion) -> anyhow::Result<u8> {
    args.output.write(version, || version.to_string())?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::ProgramVersion;

    #[test]
    fn version_without_revision_is_marked() {
        for revision in [None, Some("")] {
            let text = ProgramVersion::of(revision).to_string();
            assert!(text.ends_with("(revision unknown)\n"), "{text}");
        }
        let text = ProgramVersion::of(Some("0123abcd")).to_string();
        assert!(text.ends_with("(revision 0123abcd)\n"), "{text}");
    }
}
