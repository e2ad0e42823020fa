//! Signing keys and recipients named on the command line of the bundle commands.

use std::path::{Path, PathBuf};

use sesame_proto::bundle::sealed::{HostKey, SealError};
use sesame_proto::signature::SigningKeys;

use crate::open::{self, OpenError, Rule};

/// Bytes of a file of public keys at most.
const MAX_RECIPIENTS_BYTES: u64 = 4 << 20;
/// Bytes of a file of private keys at most.
const MAX_SIGNING_KEY_BYTES: u64 = 64 << 10;

/// Reasons for which a file of hosts' public keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecipientsError {
    /// The file must not be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A line holds something else.
    #[error("{path}:{line}: {source}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The reason.
        source: SealError,
    },
}

/// Reads the public keys of hosts, one a line; text after `#` is passed over.
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

/// Reasons for which a file of keys that sign cannot be used. None holds any of the file's text.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeyError {
    /// The file must not be read.
    #[error("--signing-key {0}")]
    Open(OpenError),
    /// The file holds something else.
    #[error("--signing-key {path}: {reason}")]
    Keys {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// Reads the file of private keys that `--signing-key` names, each of which signs.
pub fn read_signing_keys(path: &Path) -> Result<SigningKeys, SigningKeyError> {
    let pem =
        open::read(path, Rule::Named, MAX_SIGNING_KEY_BYTES).map_err(SigningKeyError::Open)?;
    SigningKeys::from_pem(&pem).map_err(|error| SigningKeyError::Keys {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}
