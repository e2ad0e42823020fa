//! Reads key files for the bundle commands.

use std::path::{Path, PathBuf};

use sesame_proto::bundle::sealed::{HostKey, SealError};
use sesame_proto::signature::SigningKeys;

use crate::open::{self, OpenError, Rule};

const MAX_RECIPIENTS_BYTES: u64 = 4 << 20;
const MAX_SIGNING_KEY_BYTES: u64 = 64 << 10;

/// Error for an unusable recipients file.
#[derive(Debug, thiserror::Error)]
pub enum RecipientsError {
    /// The file is untrusted or unreadable.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A line is not a public key.
    #[error("{path}:{line}: {source}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The reason.
        source: SealError,
    },
}

/// Reads hosts' public keys, one per line. Ignores comments after `#`.
pub fn read_recipients(path: &Path) -> Result<Vec<HostKey>, RecipientsError> {
    let text = open::read_text(path, Rule::Named, MAX_RECIPIENTS_BYTES)?;
    let lines = text.lines().enumerate().filter_map(|(index, line)| {
        let key = line.split('#').next().unwrap_or_default().trim();
        (!key.is_empty()).then_some((index + 1, key))
    });
    lines
        .map(|(line, key)| {
            key.parse().map_err(|source| RecipientsError::Line {
                path: path.to_owned(),
                line,
                source,
            })
        })
        .collect()
}

/// Error for an unusable signing key file. Never contains text from the file.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeyError {
    /// The file is untrusted or unreadable.
    #[error("--signing-key {0}")]
    Open(OpenError),
    /// Contains no valid private keys.
    #[error("--signing-key {path}: {reason}")]
    Keys {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// Reads all private keys from the `--signing-key` file.
pub fn read_signing_keys(path: &Path) -> Result<SigningKeys, SigningKeyError> {
    let pem =
        open::read(path, Rule::Named, MAX_SIGNING_KEY_BYTES).map_err(SigningKeyError::Open)?;
    SigningKeys::from_pem(&pem).map_err(|error| SigningKeyError::Keys {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}
