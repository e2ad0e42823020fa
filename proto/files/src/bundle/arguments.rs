//! Arguments shared by all commands that create bundles.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sesame_proto::bundle::BundleLabel;
use sesame_proto::bundle::sealed::HostKey;
use sesame_proto::signature::SigningKeys;

use super::{RecipientsError, SUFFIX, SigningKeyError, read_recipients, read_signing_keys};

/// Arguments for a command that creates a bundle.
#[derive(Clone, Debug, Args)]
pub struct BundleArgs {
    /// File to write; its name must end in .bundle.
    #[arg(short = 'o', long = "file", value_name = "FILE")]
    pub file: PathBuf,
    /// File with Ed25519 private keys (PEM, PKCS#8), all of which sign the bundle.
    #[arg(long, value_name = "FILE")]
    signing_key: PathBuf,
    /// Encrypt the Gateway's private keys to this host, whose public key `sesame-agent identity`
    /// prints; repeatable. Without recipients, the bundle omits private keys, which are then read
    /// only if needed.
    #[arg(long = "recipient", value_name = "KEY")]
    recipients: Vec<HostKey>,
    /// File with more recipients: one key per line; text after # is ignored.
    #[arg(long, value_name = "FILE")]
    recipients_file: Option<PathBuf>,
    /// Sequence number, which must exceed the previous bundle's; by default the current Unix time
    /// in milliseconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    sequence: Option<u64>,
    /// Creator of the bundle; informational.
    #[arg(long, value_name = "TEXT", default_value = "")]
    creator: String,
    /// Description of the source; informational. Defaults to the location from which the Gateway is
    /// read.
    #[arg(long, value_name = "TEXT")]
    origin: Option<String>,
}

/// Keys used to create a bundle.
#[derive(Debug)]
pub struct BundleKeys {
    /// Keys to sign with.
    pub signing: SigningKeys,
    /// Hosts to encrypt private keys for.
    pub hosts: Vec<HostKey>,
}

/// Error for invalid arguments.
#[derive(Debug, thiserror::Error)]
pub enum BundleArgsError {
    /// Hosts would ignore a file whose name does not end in `.bundle`.
    #[error("-o {0}: hosts read only files named *{SUFFIX}")]
    Name(PathBuf),
    /// The signing keys are missing or invalid.
    #[error(transparent)]
    SigningKey(#[from] SigningKeyError),
    /// The recipients' public keys are missing or invalid.
    #[error(transparent)]
    Recipients(#[from] RecipientsError),
}

impl BundleArgs {
    /// Checks the file name and reads the keys.
    pub fn keys(&self) -> Result<BundleKeys, BundleArgsError> {
        let name = self.file.to_str();
        if !name.is_some_and(|name| name.ends_with(SUFFIX)) {
            return Err(BundleArgsError::Name(self.file.clone()));
        }
        let signing = read_signing_keys(&self.signing_key)?;
        let mut hosts = self.recipients.clone();
        if let Some(path) = &self.recipients_file {
            hosts.extend(read_recipients(path)?);
        }
        Ok(BundleKeys { signing, hosts })
    }

    /// Returns a bundle's label. `now` is the time since the Unix epoch, and `from` the default
    /// origin.
    pub fn label(&self, gateway: &str, now: Duration, from: String) -> BundleLabel {
        BundleLabel {
            gateway: gateway.to_owned(),
            // Milliseconds fit into 64 bits for half a billion years.
            sequence: self
                .sequence
                .unwrap_or_else(|| u64::try_from(now.as_millis()).unwrap_or(u64::MAX)),
            created: now.as_secs(),
            creator: self.creator.clone(),
            origin: self.origin.clone().unwrap_or(from),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        bundle: BundleArgs,
    }

    fn parsed(arguments: &[&str]) -> BundleArgs {
        let all = ["make", "--signing-key", "/nowhere/key"];
        let all = all.iter().chain(arguments);
        Command::try_parse_from(all).expect("arguments").bundle
    }

    #[test]
    fn unusable_file_name_is_refused_before_reading_keys() {
        let refused = parsed(&["-o", "edge.txt"]).keys();
        assert!(
            matches!(refused, Err(BundleArgsError::Name(_))),
            "{refused:?}"
        );
        let error = parsed(&["-o", "edge.bundle"]).keys().expect_err("no key");
        assert!(
            error.to_string().starts_with("--signing-key /nowhere/key"),
            "{error}"
        );
    }

    #[test]
    fn label_uses_arguments_or_time_and_place() {
        let now = Duration::from_millis(1_700_000_000_123);
        let of = |arguments: &[&str]| parsed(arguments).label("Gateway/a/b", now, "there".into());
        let plain = of(&["-o", "a.bundle"]);
        assert_eq!(
            (plain.sequence, plain.created),
            (1_700_000_000_123, 1_700_000_000)
        );
        assert_eq!(
            (plain.creator.as_str(), plain.origin.as_str()),
            ("", "there")
        );
        let label = of(&[
            "-o",
            "a.bundle",
            "--sequence",
            "7",
            "--creator",
            "me",
            "--origin",
            "x",
        ]);
        assert_eq!(
            (
                label.sequence,
                label.creator.as_str(),
                label.origin.as_str()
            ),
            (7, "me", "x")
        );
    }
}
