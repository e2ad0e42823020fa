//! Which API server there is, as a file says it.

use std::path::Path;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

/// What the file says now, in its current context: tokens and authorities in it change.
pub async fn read(path: &Path) -> Result<Config, KubeconfigError> {
    let file = Kubeconfig::read_from(path)?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await
}
