//! Judges configurations with `envoy --mode validate`, without touching the serving process.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use sesame_proto::schema::Snapshot;

use super::accepted_keys::AcceptedKeys;
use sesame_envoy::validate::{ValidateError, Validity, validate};
use sesame_host::reserve::{EnvoyInstances, LackingInstances, VALIDATION};
use sesame_proto::encoded::EncodedSnapshot;
use sesame_render::{AccessLogSink, RenderOptions};

/// Scope of a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidationScope {
    /// Only some pieces, with placeholders for ports and addresses.
    Alone,
    /// The whole configuration.
    Whole,
}

/// Judges whether Envoy would accept a snapshot.
pub trait Judge: Sync {
    /// Returns Envoy's message if it rejects the snapshot.
    fn judge(
        &self,
        snapshot: Snapshot,
        scope: ValidationScope,
    ) -> impl Future<Output = Result<Option<String>, NoVerdict>> + Send;
}

/// Why a configuration could not be judged.
#[derive(Debug, thiserror::Error)]
pub enum NoVerdict {
    /// Envoy could not be started, or did not finish.
    #[error(transparent)]
    Validate(#[from] ValidateError),
    /// No inotify instance is free. Without one, Envoy would abort.
    #[error(transparent)]
    Instances(#[from] LackingInstances),
    /// Error in the agent. The configuration may be valid.
    #[error("cannot build the configuration for validation: {0}")]
    Internal(String),
}

/// Judges by running Envoy.
#[derive(Clone, Debug)]
pub struct EnvoyJudge {
    /// Envoy binary, which must be the one that is serving.
    pub binary: PathBuf,
    /// Private directory for temporary files, which contain keys.
    pub scratch: PathBuf,
    /// Target configuration with its key pairs.
    pub encoded: Arc<EncodedSnapshot>,
    /// Accepted versions of keys that a snapshot may reference.
    pub accepted_keys: AcceptedKeys,
    /// Options for rendering.
    pub options: RenderOptions,
    /// Reserve of inotify instances for validations.
    pub instances: EnvoyInstances,
}

impl Judge for EnvoyJudge {
    async fn judge(
        &self,
        snapshot: Snapshot,
        scope: ValidationScope,
    ) -> Result<Option<String>, NoVerdict> {
        // In validate mode, Envoy watches no files, so the budget does not apply.
        let mut options = RenderOptions {
            subscription_budget: usize::MAX,
            ..self.options.clone()
        };
        // Envoy must check the format of the access log without opening it.
        if let Some(AccessLogSink::File(path)) = &mut options.access_log {
            *path = "/dev/null".into();
        }
        if scope == ValidationScope::Alone {
            options.addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
            options.port_map.clear();
        }
        let encoded = Arc::clone(&self.encoded);
        let accepted_keys = self.accepted_keys.clone();
        let bootstrap = tokio::task::spawn_blocking(move || {
            let keys = accepted_keys.pairs(&snapshot, encoded.keys());
            sesame_render::static_bootstrap(&sesame_render::render(&snapshot, &keys, &options))
        })
        .await
        .map_err(|error| NoVerdict::Internal(error.to_string()))?
        .map_err(|error| NoVerdict::Internal(error.to_string()))?;
        let _loan = self.instances.borrow(VALIDATION)?;
        Ok(
            match validate(&self.binary, &self.scratch, &bootstrap).await? {
                Validity::Valid => None,
                Validity::Invalid { envoy_words } => Some(reason(&envoy_words)),
            },
        )
    }
}

/// Removes the path of the temporary file from Envoy's message.
fn reason(envoy_words: &str) -> String {
    envoy_words
        .split_once("error initializing configuration '")
        .and_then(|(_, rest)| rest.split_once("': "))
        .map_or(envoy_words, |(_, reason)| reason)
        .trim()
        .to_owned()
}
