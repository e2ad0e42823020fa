//! Stores the host's credential: a kubeconfig and a separate, sealed token, which the agent renews.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sesame_files::open::{self, Rule};
use sesame_published::credential::Credential;
use sesame_published::join_token::JoinToken;

use crate::cluster::stored_token::StoredToken;
use sesame_host::{create_directory, durable, remove_directory_if_exists};

const DIRECTORY: &str = "cluster";
const KUBECONFIG: &str = "kubeconfig";
const TOKEN: &str = "token";
const MAX_KUBECONFIG_BYTES: u64 = 1 << 20;

/// Kubeconfig and token of a host, as [`store`] writes them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    pub(crate) kubeconfig: String,
    pub(crate) token: String,
}

/// Returns the path of the host's kubeconfig. The file may not exist.
pub fn kubeconfig_path(state: &Path) -> PathBuf {
    state.join(DIRECTORY).join(KUBECONFIG)
}

fn token_path(state: &Path) -> PathBuf {
    state.join(DIRECTORY).join(TOKEN)
}

pub(crate) fn kubeconfig(token: &JoinToken, user: &Value) -> Value {
    let JoinToken {
        server,
        authority,
        server_name,
        namespace,
        host,
        account_uid: _,
        scope: _,
        lifetime_seconds: _,
        bearer: _,
    } = token;
    let mut cluster = json!({"server": server});
    if !authority.is_empty() {
        cluster["certificate-authority-data"] = json!(STANDARD.encode(authority));
    }
    if let Some(name) = server_name {
        cluster["tls-server-name"] = json!(name);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "host", "user": user}],
        "contexts": [{"name": host, "context": {
            "cluster": "cluster", "user": "host", "namespace": namespace,
        }}],
        "current-context": host,
    })
}

/// `state` must be an absolute path.
pub fn from_token(token: &JoinToken, credential: String, state: &Path) -> anyhow::Result<Stored> {
    let user = json!({"tokenFile": token_path(state)});
    Ok(Stored {
        kubeconfig: serde_saphyr::to_string(&kubeconfig(token, &user))?,
        token: credential,
    })
}

/// Writes the token last, because the kubeconfig grants no access without it.
pub fn store(state: &Path, files: &Stored, sealed: &StoredToken) -> anyhow::Result<()> {
    let Stored { kubeconfig, token } = files;
    create_directory(state)?;
    create_directory(&state.join(DIRECTORY))?;
    durable::replace_file(&kubeconfig_path(state), kubeconfig.as_bytes())?;
    sealed
        .store(&token_path(state), token)
        .map_err(anyhow::Error::msg)
}

/// Does not verify the token's signature, so use the claims only to find out when the token
/// expires.
pub fn read(state: &Path, sealed: &StoredToken) -> Result<Option<Credential>, String> {
    let token = sealed.read(&token_path(state))?;
    Ok(token.and_then(|token| Credential::parse(&token)))
}

/// Returns true if the host has a kubeconfig. Its token may be missing.
pub fn is_there(state: &Path) -> bool {
    kubeconfig_path(state).exists()
}

/// Returns the host's name from its kubeconfig, or `None` if missing or invalid.
pub fn host(state: &Path) -> Option<String> {
    let path = kubeconfig_path(state);
    let text = open::read_text(&path, Rule::Given, MAX_KUBECONFIG_BYTES).ok()?;
    let file: Value = serde_saphyr::from_str(&text).ok()?;
    file["current-context"].as_str().map(str::to_owned)
}

/// Removes the kubeconfig and the stored token, but not the token's plaintext copy.
pub fn remove(state: &Path) -> io::Result<()> {
    remove_directory_if_exists(&state.join(DIRECTORY))
}
