//! Reads the API server's address and the credentials from a kubeconfig. Rejects files
//! that other users can write to, because these users could replace the server's address.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use sesame_files::open::{self, OpenError, Rule};

/// Error for a kubeconfig that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The kubeconfig, or a file that it references, is not trusted.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The kubeconfig's content is invalid.
    #[error(transparent)]
    Content(#[from] KubeconfigError),
}

/// Content of a kubeconfig.
#[derive(Debug)]
pub struct KubeconfigContent {
    /// Configuration of the current context.
    pub config: Config,
    /// Warnings to log, for example about secrets that other users can read.
    pub warnings: Vec<String>,
}

/// Reads the kubeconfig's current context. Call this function for each connection, because tokens
/// and CA certificates change.
pub async fn read(path: &Path) -> Result<KubeconfigContent, FileError> {
    open::open(path, Rule::Named)?;
    let file = Kubeconfig::read_from(path)?;
    let warnings = check_content(path, &file)?;
    let options = KubeConfigOptions::default();
    Ok(KubeconfigContent {
        config: Config::from_custom_kubeconfig(file, &options).await?,
        warnings,
    })
}

/// Returns the path of the current context's token file, or `None` if unset or unreadable.
pub fn token_file(path: &Path) -> Option<PathBuf> {
    open::open(path, Rule::Named).ok()?;
    let file = Kubeconfig::read_from(path).ok()?;
    let current = file.current_context.as_deref()?;
    let mut contexts = file.contexts.into_iter();
    let user = contexts
        .find(|context| context.name == current)?
        .context?
        .user?;
    let mut users = file.auth_infos.into_iter();
    let user = users.find(|named| named.name == user)?.auth_info?;
    user.token_file.map(PathBuf::from)
}

/// Returns the default kubeconfig paths.
pub fn usual() -> Vec<PathBuf> {
    match std::env::var_os("KUBECONFIG") {
        Some(list) => std::env::split_paths(&list).collect(),
        None => std::env::home_dir()
            .into_iter()
            .map(|home| home.join(".kube/config"))
            .collect(),
    }
}

/// Checks a kubeconfig and the files that it references, and returns warnings. A missing kubeconfig
/// is not an error.
pub fn check(path: &Path) -> Result<Vec<String>, FileError> {
    match open::open(path, Rule::Named) {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
        Ok(_) => check_content(path, &Kubeconfig::read_from(path)?),
    }
}

/// Returns a warning for each secret file that other users can read.
fn check_content(path: &Path, file: &Kubeconfig) -> Result<Vec<String>, FileError> {
    let mut warnings = Vec::new();
    let mut file_is_secret = false;
    let clusters = file
        .clusters
        .iter()
        .filter_map(|named| named.cluster.as_ref());
    for cluster in clusters {
        if let Some(authority) = &cluster.certificate_authority {
            mode_of(Path::new(authority))?;
        }
    }
    for user in file
        .auth_infos
        .iter()
        .filter_map(|named| named.auth_info.as_ref())
    {
        let AuthInfo {
            password,
            token,
            token_file,
            client_certificate,
            client_key,
            client_key_data,
            ..
        } = user;
        file_is_secret |= password.is_some() || token.is_some() || client_key_data.is_some();
        if let Some(certificate) = client_certificate {
            mode_of(Path::new(certificate))?;
        }
        for secret in [token_file, client_key].into_iter().flatten() {
            let secret = Path::new(secret);
            warnings.extend(readable(secret, mode_of(secret)?));
        }
    }
    if file_is_secret {
        warnings.extend(readable(path, mode_of(path)?));
    }
    Ok(warnings)
}

/// Returns `None` if the file does not exist. Reading the file later reports the error.
fn mode_of(path: &Path) -> Result<Option<u32>, OpenError> {
    match open::open(path, Rule::Named) {
        Ok((_, metadata)) => Ok(Some(metadata.mode() & 0o7777)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn readable(path: &Path, mode: Option<u32>) -> Option<String> {
    let mode = mode.filter(|mode| mode & 0o004 != 0)?;
    let path = path.display();
    Some(format!(
        "{path}: all users of this host can read its credentials (mode {mode:04o}); run `chmod \
        o-r {path}`"
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const FILE: &str = r"
apiVersion: v1
kind: Config
current-context: it
clusters: [{name: it, cluster: {server: 'https://127.0.0.1:6443'}}]
contexts: [{name: it, context: {cluster: it, user: it}}]
users: [{name: it, user: {tokenFile: token}}]
";

    #[tokio::test]
    async fn kubeconfig_or_token_writable_by_others_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let (path, token) = (root.path().join("config"), root.path().join("token"));
        fs::write(&path, FILE).unwrap();
        fs::write(&token, "secret").unwrap();
        let with = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        with(&path, 0o600);
        with(&token, 0o600);
        let good = read(&path).await.unwrap();
        assert_eq!(good.warnings, Vec::<String>::new());
        for (file, mode, who) in [
            (&path, 0o660, "its group"),
            (&path, 0o602, "all users"),
            (&token, 0o620, "its group"),
            (&token, 0o666, "all users"),
        ] {
            with(file, mode);
            let error = read(&path).await.unwrap_err().to_string();
            let expected = format!("{}: {who} can write to it", file.display());
            assert!(error.starts_with(&expected), "{error}");
            assert!(check(&path).is_err());
            with(file, 0o600);
        }
        with(&token, 0o644);
        let read = read(&path).await.unwrap();
        assert_eq!(read.warnings.len(), 1);
        assert!(
            read.warnings[0].contains("can read its credentials"),
            "{:?}",
            read.warnings
        );
        // A file without secrets may be readable by all users.
        with(&token, 0o600);
        with(&path, 0o644);
        assert_eq!(check(&path).unwrap(), Vec::<String>::new());
        assert_eq!(
            check(&root.path().join("none")).unwrap(),
            Vec::<String>::new()
        );
    }
}
