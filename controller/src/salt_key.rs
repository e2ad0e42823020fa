//! The secret for the salts of published credentials: a Secret in the controller's namespace.
//!
//! Each replica may create it, because creation is atomic and nothing ever changes it. Nothing is
//! resolved without it.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use sesame_files::random;
use sesame_kinds::world::Kind;
use sesame_proto::salts::SaltKey;
use sesame_published::names::{SALT_ENTRY, SALT_SECRET};

use crate::connection::answer;
use crate::replica::Replica;
use crate::retry::READ_BACKOFF;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Retries until the Secret exists and is valid.
pub(crate) async fn obtain(replica: Replica) -> SaltKey {
    let mut backoff = READ_BACKOFF;
    loop {
        match read_or_create(&replica).await {
            Ok(key) => return key,
            Err(why) => {
                let namespace = &replica.namespace;
                tracing::warn!(
                    why,
                    "cannot read Secret {namespace}/{SALT_SECRET}; nothing is resolved without it"
                );
            }
        }
        tokio::time::sleep(backoff.next_pause()).await;
    }
}

async fn read_or_create(replica: &Replica) -> Result<SaltKey, String> {
    let api: Api<Secret> = Api::namespaced(replica.client.clone(), &replica.namespace);
    let found = answer(TIMEOUT, api.get_opt(SALT_SECRET)).await;
    if let Some(found) = found.map_err(|error| error.to_string())? {
        return read(found);
    }
    let mut key = [0; SaltKey::BYTES];
    random::fill(&mut key).map_err(|error| error.to_string())?;
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(SALT_SECRET.to_owned()),
            namespace: Some(replica.namespace.clone()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            SALT_ENTRY.to_owned(),
            ByteString(key.to_vec()),
        )])),
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    };
    let metrics = &replica.metrics;
    metrics.published(Kind::Secret.as_str(), "create");
    // If another replica was faster, the next attempt reads its key.
    let created = answer(TIMEOUT, api.create(&PostParams::default(), &secret)).await;
    created.map_err(|error| error.to_string()).and_then(read)
}

fn read(secret: Secret) -> Result<SaltKey, String> {
    let key = secret.data.unwrap_or_default().remove(SALT_ENTRY);
    let key = key.and_then(|key| key.0.try_into().ok());
    key.map(SaltKey::new).ok_or_else(|| {
        let bytes = SaltKey::BYTES;
        format!("expected {bytes} bytes in {SALT_ENTRY:?}; delete the Secret to create a new one")
    })
}
