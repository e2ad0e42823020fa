//! The way to the API server, and when it is another one than at the start.
//!
//! A client reads a token's file again by itself, but keeps the authorities that it was made with, and what a kubeconfig
//! said. It never prints any of it.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use kube::{Client, Config};

use sesame_files::open::{self, Rule};

use sesame_published::kubeconfig;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer, or more of it, may take. Watches end before.
const READ_TIMEOUT: Duration = Duration::from_secs(55);

/// How often the files are looked at. Who replaces them leaves the old ones good for much longer.
const LOOK: Duration = Duration::from_secs(10);

/// The most that is read of a kubeconfig.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A clock that is set back by less changes nothing: tokens are read again each minute, and are good for much longer.
const SET_BACK: Duration = Duration::from_secs(60);

/// A client, and where what it needs comes from.
pub(crate) struct Connection {
    pub(crate) client: Client,
    kubeconfig: Option<PathBuf>,
    fingerprint: u64,
}

impl Connection {
    /// By what the kubeconfig says, if one is given, or else what can be found.
    pub(crate) async fn open(kubeconfig: Option<PathBuf>) -> Result<Self> {
        let Found {
            mut config,
            fingerprint,
            warnings,
        } = read(kubeconfig.as_deref()).await?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(READ_TIMEOUT);
        config.reset_reader_on_write = true;
        tracing::info!(url = %config.cluster_url, "the API server");
        Ok(Self {
            client: Client::try_from(config).context("a client of the API server")?,
            kubeconfig,
            fingerprint,
        })
    }

    /// Waits until the files say something else that can be used, or the client would use for too long what it has: it
    /// notes by the wall clock when to read a token's file again.
    pub(crate) async fn outdated(&self) {
        loop {
            let (wall, steady) = (SystemTime::now(), Instant::now());
            tokio::time::sleep(LOOK).await;
            if is_set_back(wall, SystemTime::now(), steady.elapsed()) {
                tracing::warn!("the clock was set back");
                return;
            }
            match read(self.kubeconfig.as_deref()).await {
                Ok(found) if found.fingerprint == self.fingerprint => {}
                Ok(_) => return,
                Err(error) => tracing::warn!("{error:#}; what was read before is used"),
            }
        }
    }
}

/// Whether the wall clock went on by much less than what has `passed`.
fn is_set_back(before: SystemTime, now: SystemTime, passed: Duration) -> bool {
    now + SET_BACK < before + passed
}

/// What there is to connect with.
struct Found {
    config: Config,
    /// Tells one from another.
    fingerprint: u64,
    warnings: Vec<String>,
}

async fn read(kubeconfig: Option<&Path>) -> Result<Found> {
    let mut hasher = DefaultHasher::new();
    let mut warnings = Vec::new();
    let config = if let Some(path) = kubeconfig {
        let at = || format!("--kubeconfig {}", path.display());
        let bytes = open::read(path, Rule::Named, MAX_FILE_BYTES).with_context(at)?;
        bytes.hash(&mut hasher);
        let read = kubeconfig::read(path).await.with_context(at)?;
        warnings.extend(read.warnings);
        read.config
    } else {
        for path in kubeconfig::usual() {
            warnings.extend(kubeconfig::check(&path)?);
        }
        Config::infer().await.context(
            "no cluster: run in a pod with a ServiceAccount, or set --kubeconfig or $KUBECONFIG",
        )?
    };
    config.cluster_url.hash(&mut hasher);
    config.root_cert.hash(&mut hasher);
    Ok(Found {
        config,
        fingerprint: hasher.finish(),
        warnings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_is_noticed_and_one_that_goes_ahead_is_fine() {
        let before = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let passed = Duration::from_secs(10);
        let year = Duration::from_secs(365 * 24 * 3600);
        assert!(!is_set_back(before, before + passed, passed));
        assert!(!is_set_back(before, before, passed));
        assert!(!is_set_back(before, before + year, passed));
        assert!(is_set_back(
            before,
            before - Duration::from_secs(3600),
            passed
        ));
        assert!(is_set_back(before, SystemTime::UNIX_EPOCH - year, passed));
    }
}
