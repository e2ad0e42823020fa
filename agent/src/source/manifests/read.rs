//! Reads one manifest, bounded, and never waits on what is no regular file.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

use super::tree::Stamp;

/// The text of the file and what it was stamped with when it was read, or why it cannot be read.
pub(super) fn read(path: &Path, limit: u64) -> Result<(String, Stamp), String> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).map_err(|error| error.to_string())?;
    let told = |error: std::io::Error| format!("cannot be read: {error}");
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(told)?;
    let metadata = file.metadata().map_err(told)?;
    if !metadata.is_file() {
        return Err("is no regular file".to_owned());
    }
    let too_large = || format!("has more than {limit} bytes: split it");
    if metadata.len() > limit {
        return Err(too_large());
    }
    // The stamp is from before the read: a write in between shows as a change at the next look.
    let stamp = Stamp::of(&metadata);
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1);
    file.by_ref()
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(told)?;
    if u64::try_from(bytes.len()).is_ok_and(|read| read > limit) {
        return Err(too_large());
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        format!(
            "is not UTF-8 text (at byte {})",
            error.utf8_error().valid_up_to()
        )
    })?;
    Ok((text, stamp))
}
