//! Reads and replaces a generation's keys. Even after a power cut, the keys whose digest is in
//! `meta.json` are on disk.

use super::{
    KEYS, MAX_KEYS, META, Meta, PathBuf, PathError, StateDir, StateError, durable, io,
    read_bounded, sha256,
};

const NEXT: &str = "keys.next";

impl StateDir {
    /// Reads a generation's keys and verifies their digest.
    pub fn load_keys(&self, number: u64) -> Result<Vec<u8>, StateError> {
        let meta = self.meta(number)?;
        self.read_keys(&meta)
    }

    pub(super) fn read_keys(&self, meta: &Meta) -> Result<Vec<u8>, StateError> {
        let directory = self.of_generation(meta.number);
        let read = |name: &str| read_bounded(&directory.join(name), MAX_KEYS);
        let is_named = |bytes: &Vec<u8>| sha256(bytes) == meta.keys_sha256;
        let reason = match read(KEYS) {
            Ok(keys) if is_named(&keys) => return Ok(keys),
            Ok(_) => format!("{KEYS}: its SHA-256 is not {}", meta.keys_sha256),
            Err(error) => format!("{KEYS}: {error}"),
        };
        let number = meta.number;
        let beside = read(NEXT).ok().filter(is_named);
        beside.ok_or(StateError::Damaged { number, reason })
    }

    /// Replaces a generation's keys. After a power cut, either old or new keys are readable.
    pub fn replace_keys(&self, number: u64, keys: &[u8]) -> Result<(), StateError> {
        self.settle_keys(number)?;
        let directory = self.of_generation(number);
        let [now, next, description] = [KEYS, NEXT, META].map(|name| directory.join(name));
        let meta = Meta {
            keys_sha256: sha256(keys),
            ..self.meta(number)?
        };
        let text = serde_json::to_vec_pretty(&meta)
            .map_err(|error| PathError::at(&description)(io::Error::other(error)))?;
        durable::write_file(&next, keys).map_err(PathError::at(&next))?;
        durable::sync_directory(&directory).map_err(PathError::at(&directory))?;
        durable::replace_file(&description, &text).map_err(PathError::at(&description))?;
        Ok(durable::rename(&next, &now).map_err(PathError::at(&now))?)
    }

    /// Completes an interrupted key replacement, to remove the old keys from disk.
    pub fn settle_keys(&self, number: u64) -> Result<(), StateError> {
        let directory = self.of_generation(number);
        let [now, next] = [KEYS, NEXT].map(|name| directory.join(name));
        let Ok(beside) = read_bounded(&next, MAX_KEYS) else {
            return Ok(());
        };
        let meta = self.meta(number);
        if meta.is_ok_and(|meta| sha256(&beside) == meta.keys_sha256) {
            durable::rename(&next, &now).map_err(PathError::at(&now))?;
        }
        Ok(())
    }

    fn of_generation(&self, number: u64) -> PathBuf {
        self.generations().join(number.to_string())
    }
}
