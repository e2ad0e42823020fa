//! Connects to the API server, and detects changes to its address or credentials. A kube client
//! rereads its token file, but not its CA certificates or kubeconfig. Never log the contents of
//! these files.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use sesame_files::open::{self, Rule};

use sesame_published::kubeconfig;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Read timeout, longer than any watch.
const READ_TIMEOUT: Duration = Duration::from_secs(55);

/// Interval between checks for rotated credentials. The previous credentials remain valid for much
/// longer.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

const MAX_FILE_BYTES: u64 = 4 << 20;

/// Minimum backward clock jump to handle. Smaller jumps are harmless: tokens are reread every
/// minute and remain valid for much longer.
const CLOCK_SETBACK: Duration = Duration::from_secs(60);

pub(crate) struct ClusterConnection {
    pub(crate) client: Client,
    kubeconfig: Option<PathBuf>,
    fingerprint: u64,
}

impl ClusterConnection {
    pub(crate) async fn open(kubeconfig: Option<PathBuf>) -> Result<Self> {
        let ConnectionSettings {
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
        tracing::info!(url = %config.cluster_url, "connecting to the API server");
        Ok(Self {
            client: Client::try_from(config)
                .context("cannot create a client for the API server")?,
            kubeconfig,
            fingerprint,
        })
    }

    /// Also completes if the wall clock was set back, because clients would then reread tokens too
    /// late.
    pub(crate) async fn outdated(&self) {
        loop {
            let (wall, steady) = (SystemTime::now(), Instant::now());
            tokio::time::sleep(POLL_INTERVAL).await;
            if is_set_back(wall, SystemTime::now(), steady.elapsed()) {
                tracing::warn!("the clock was set back");
                return;
            }
            match read(self.kubeconfig.as_deref()).await {
                Ok(found) if found.fingerprint == self.fingerprint => {}
                Ok(_) => return,
                Err(error) => tracing::warn!("{error:#}; using the previous credentials"),
            }
        }
    }
}

pub(crate) async fn config(kubeconfig: Option<&Path>) -> Result<Config> {
    let ConnectionSettings {
        mut config,
        fingerprint: _,
        warnings: _,
    } = read(kubeconfig).await?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    Ok(config)
}

pub(crate) async fn config_of_user(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Result<Config> {
    let Some(context) = context else {
        return config(kubeconfig).await;
    };
    let files = kubeconfig.map_or_else(kubeconfig::usual, |file| vec![file.to_owned()]);
    for file in &files {
        kubeconfig::check(file)?;
    }
    let file = match kubeconfig {
        Some(file) => Kubeconfig::read_from(file)?,
        None => Kubeconfig::read()?,
    };
    let options = KubeConfigOptions {
        context: Some(context.to_owned()),
        ..KubeConfigOptions::default()
    };
    let mut config = Config::from_custom_kubeconfig(file, &options)
        .await
        .with_context(|| format!("--context {context}"))?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    Ok(config)
}

pub(crate) async fn answer<T>(
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> kube::Result<T> {
    let late = |_| {
        Err(kube::Error::Service(
            format!("no response within {limit:?}").into(),
        ))
    };
    tokio::time::timeout(limit, request)
        .await
        .unwrap_or_else(late)
}

fn is_set_back(before: SystemTime, now: SystemTime, passed: Duration) -> bool {
    now + CLOCK_SETBACK < before + passed
}

struct ConnectionSettings {
    config: Config,
    fingerprint: u64,
    warnings: Vec<String>,
}

async fn read(kubeconfig: Option<&Path>) -> Result<ConnectionSettings> {
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
    Ok(ConnectionSettings {
        config,
        fingerprint: hasher.finish(),
        warnings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clock_set_back_is_noticed() {
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
