//! Fetches the key sets that manifests request, and stores copies in the state directory.
//!
//! The copies are loaded before the first scan, so a host that reboots without a network has them.

use std::path::PathBuf;
use std::sync::Arc;

use sesame_files::open::{self, Rule};
use sesame_key_sets::{KeySetKeeper, KeySetStore};
use sesame_proto::key_sets::{KeySetCopies, KeySetCopy, KeySetRequests};
use tokio::sync::watch;

use sesame_host::{create_directory, entries, remove_if_exists, replace_file};

/// Maximum file size in bytes, enough for a canonical key set, quoted as JSON, and its URI.
const MAX_FILE_BYTES: u64 = 64 * 1024;
const SUFFIX: &str = ".json";

/// Requests for key sets, and the copies that are already stored.
#[derive(Debug)]
pub struct FetchedKeySets {
    requests: watch::Sender<Option<Arc<KeySetRequests>>>,
    copies: watch::Receiver<Arc<KeySetCopies>>,
}

impl FetchedKeySets {
    /// The returned future fetches key sets until it is dropped.
    pub fn load(directory: PathBuf) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let store = CopyFiles { directory };
        let (requests, requested) = watch::channel(None);
        let (observed, copies) = watch::channel(Arc::new(store.read()));
        // An agent always fetches key sets. Keep the sender, so that the channel stays open.
        let (always, active) = watch::channel(true);
        let keeper = KeySetKeeper {
            store,
            requests: requested,
            active,
        };
        let fetching = async move {
            let observe = |copies: &KeySetCopies| {
                observed.send_if_modified(|known| {
                    let differs = **known != *copies;
                    if differs {
                        *known = Arc::new(copies.clone());
                    }
                    differs
                });
            };
            keeper.run(observe).await;
            drop(always);
        };
        (Self { requests, copies }, fetching)
    }

    /// Replaces all previous requests.
    pub fn request(&self, requests: KeySetRequests) {
        let requests = Some(Arc::new(requests));
        self.requests.send_if_modified(|known| {
            let differs = *known != requests;
            *known = requests;
            differs
        });
    }

    /// Returns the newest copies without waiting for requested ones.
    pub fn newest(&self) -> Arc<KeySetCopies> {
        Arc::clone(&self.copies.borrow())
    }

    /// Waits until the copies change, or forever if fetching has stopped.
    pub async fn changed(&mut self) {
        if self.copies.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

struct CopyFiles {
    directory: PathBuf,
}

impl CopyFiles {
    /// Treats damaged files as missing.
    fn read(&self) -> KeySetCopies {
        let files = entries(&self.directory).unwrap_or_default().into_iter();
        let copies = files.filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
            let bytes = open::read(&path, Rule::Own, MAX_FILE_BYTES).ok()?;
            Some((name.to_owned(), serde_json::from_slice(&bytes).ok()?))
        });
        copies.collect()
    }

    fn write(&self, name: &str, copy: &KeySetCopy) -> std::io::Result<()> {
        create_directory(&self.directory)?;
        let path = self.directory.join(format!("{name}{SUFFIX}"));
        let staged = self.directory.join(format!(".{name}"));
        replace_file(&path, &staged, &serde_json::to_vec(copy)?)
    }
}

impl KeySetStore for CopyFiles {
    async fn load(&self) -> Result<KeySetCopies, String> {
        Ok(self.read())
    }

    async fn save(&self, name: &str, copy: &KeySetCopy) -> Result<(), String> {
        self.write(name, copy).map_err(|error| error.to_string())
    }

    async fn remove(&self, name: &str) -> Result<(), String> {
        let path = self.directory.join(format!("{name}{SUFFIX}"));
        remove_if_exists(&path).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn copies_survive_restarts_and_damage() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("key-sets");
        let store = CopyFiles {
            directory: directory.clone(),
        };
        let copy = KeySetCopy {
            uri: "https://issuer.test/keys".to_owned(),
            jwks: "{}".to_owned(),
            ..KeySetCopy::default()
        };
        for name in ["a", "b", "c"] {
            store.save(name, &copy).await.unwrap();
        }
        store.remove("b").await.unwrap();
        store.remove("none").await.unwrap();
        std::fs::write(directory.join("c.json"), b"{").unwrap();
        let expected = KeySetCopies::from([("a".to_owned(), copy)]);
        assert_eq!(store.load().await, Ok(expected));
    }
}
