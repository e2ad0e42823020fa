//! Reads one manifest with a size limit, and never blocks on a special file.

use std::fs;
use std::io;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use sesame_files::open::{self, OpenError, Rule};

use super::tree::{Stamp, leads_out, may_pass};

/// Why a manifest was not read.
#[derive(Debug)]
pub(super) struct Unread {
    pub(super) reason: String,
    /// The next attempt may succeed although the file has not changed.
    pub(super) retry: bool,
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self {
            retry: may_pass(&error),
            reason: format!("cannot be read: {error}"),
        }
    }
}

impl From<String> for Unread {
    fn from(reason: String) -> Self {
        Self {
            reason,
            retry: false,
        }
    }
}

/// Returns the text, and the stamp from before the read.
///
/// If `within` is set, the file must be in that directory once all links are resolved.
pub(super) fn read(
    path: &Path,
    within: Option<&Path>,
    limit: u64,
) -> Result<(String, Stamp), Unread> {
    let opened = open::open(path, Rule::GivenByLink);
    let (mut file, metadata) = opened.map_err(|error| match error {
        OpenError::Io { source, .. } => Unread::from(source),
        // The problem already contains the path.
        error => {
            let text = error.to_string();
            let name = format!("{}: ", path.display());
            Unread::from(text.strip_prefix(&name).unwrap_or(&text).to_owned())
        }
    })?;
    if let Some(root) = within {
        let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if !real.starts_with(root) {
            return Err(leads_out(&real).into());
        }
    }
    let too_large = || format!("has more than {limit} bytes; split it");
    if metadata.len() > limit {
        return Err(too_large().into());
    }
    // A stamp from before the read lets the next scan detect a write during the read.
    let stamp = Stamp::of(&metadata);
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1);
    file.by_ref()
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|read| read > limit) {
        return Err(too_large().into());
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        format!(
            "is not UTF-8 text (at byte {})",
            error.utf8_error().valid_up_to()
        )
    })?;
    Ok((text, stamp))
}
