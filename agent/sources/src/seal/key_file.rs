//! Stores a sealing key in a separate file that only the agent's user can read.

use std::path::Path;

use sesame_files::open::{self, Rule};
use sesame_proto::at_rest::SealingKey;

use super::{Found, new_key};
use sesame_host::durable::{create_directory, replace_file};

const FILE: &str = "host.key";
const MAX_BYTES: u64 = 4 << 10;

pub(super) fn read(directory: &Path) -> Result<Option<Found>, String> {
    let path = directory.join(FILE);
    let text = match open::read_text(&path, Rule::Own, MAX_BYTES) {
        Ok(text) => text,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let key = SealingKey::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Some((key, place(&path))))
}

/// Never overwrites an existing file, because data may have been sealed with its key.
pub(super) fn create(directory: &Path) -> Result<Found, String> {
    let path = directory.join(FILE);
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if path.symlink_metadata().is_ok() {
        let path = path.display();
        return Err(format!(
            "{path} cannot be used; fix it, or remove it to create a new one"
        ));
    }
    let key = new_key()?;
    create_directory(directory).map_err(failed)?;
    replace_file(&path, key.stored().as_bytes()).map_err(failed)?;
    Ok((key, place(&path)))
}

fn place(path: &Path) -> String {
    format!("the key file {}", path.display())
}
