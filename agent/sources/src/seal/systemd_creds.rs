//! Sealing keys that systemd encrypts with the host's TPM or key.
//!
//! Never wait for a TPM without a timeout, and never replace another program's file.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use sesame_files::open::{self, Rule};
use sesame_proto::at_rest::SealingKey;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::{CREDENTIAL, Found, new_key};
use sesame_host::credentials;
use sesame_host::durable::{create_directory, replace_file};

pub(super) const FILE: &str = "systemd.cred";
const MAX_BYTES: u64 = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(15);
const PROGRAM: &str = "systemd-creds";

pub(super) fn handed_over() -> Result<Option<Found>, String> {
    let Ok(path) = credentials::resolve(format!("%d/{CREDENTIAL}").into()) else {
        return Ok(None);
    };
    let text = match open::read_text(&path, Rule::Named, MAX_BYTES) {
        Ok(text) => text,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let key = SealingKey::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Some((key, "a credential of systemd".to_owned())))
}

pub(super) async fn read(directory: &Path) -> Result<Option<Found>, String> {
    let path = directory.join(FILE);
    let encrypted = match open::read(&path, Rule::Own, MAX_BYTES) {
        Ok(encrypted) => encrypted,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let at = |why: String| format!("{}: {why}", path.display());
    let key = decrypt(&encrypted).await.map_err(at)?;
    Ok(Some((key, place(&path))))
}

pub(super) async fn create(directory: &Path) -> Result<Found, String> {
    let path = directory.join(FILE);
    let (key, encrypted) = new_credential().await?;
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    create_directory(directory).map_err(failed)?;
    replace_file(&path, &encrypted).map_err(failed)?;
    Ok((key, place(&path)))
}

/// Writes a new encrypted key to a file that a unit can load with `LoadCredentialEncrypted=`.
pub async fn make_credential(path: &Path) -> Result<(), String> {
    let (_, encrypted) = new_credential().await?;
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(parent) = path.parent()
        && !parent.is_dir()
    {
        create_directory(parent).map_err(failed)?;
    }
    if path.symlink_metadata().is_ok() {
        return Err(format!(
            "{}: already exists; replacing it would make data sealed with its key unreadable",
            path.display()
        ));
    }
    replace_file(path, &encrypted).map_err(failed)
}

/// Decrypts the new key to verify that it is usable.
async fn new_credential() -> Result<(SealingKey, Vec<u8>), String> {
    let key = new_key()?;
    let encrypted = ask("encrypt", key.stored().as_bytes()).await?;
    if decrypt(&encrypted).await? != key {
        return Err(format!(
            "{PROGRAM} did not return the key that it encrypted"
        ));
    }
    Ok((key, encrypted))
}

async fn decrypt(encrypted: &[u8]) -> Result<SealingKey, String> {
    let text = ask("decrypt", encrypted).await?;
    let text = String::from_utf8(text).map_err(|_| "contains no text".to_owned())?;
    SealingKey::parse(&text).map_err(|error| error.to_string())
}

fn place(path: &Path) -> String {
    format!("{PROGRAM} ({})", path.display())
}

/// Neither the command line nor the error messages contain secrets.
async fn ask(verb: &str, input: &[u8]) -> Result<Vec<u8>, String> {
    let mut child = Command::new(PROGRAM)
        .args([verb, &format!("--name={CREDENTIAL}"), "-", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{PROGRAM} cannot be run: {error}"))?;
    let mut stdin = child.stdin.take();
    let answer = async {
        if let Some(mut stdin) = stdin.take() {
            // Ignore errors: if the program exits early, its standard error contains the reason.
            let _ = stdin.write_all(input).await;
        }
        child.wait_with_output().await
    };
    let output = timeout(TIMEOUT, answer)
        .await
        .map_err(|_| format!("{PROGRAM} {verb} did not finish within {TIMEOUT:?}"))?
        .map_err(|error| format!("{PROGRAM} {verb}: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.lines().last().unwrap_or_default();
    Err(format!("{PROGRAM} {verb} fails: {last}"))
}
