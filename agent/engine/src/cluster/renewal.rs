//! Renews an external host's credential after about half of its lifetime. Renews only tokens that
//! `join` stored.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sesame_published::credential::Credential;
use sesame_published::host_access::HOST_PREFIX;
use sesame_published::kubeconfig;
use tokio::time::Instant;

use super::Clients;
use sesame_sources::cluster::backoff::{USUAL, jittered};
use sesame_sources::cluster::describe_error;
use sesame_sources::cluster::stored_token::StoredToken;
use sesame_sources::join::exchange;

/// Poll instead of sleeping until renewal, because the clock may jump.
const POLL_INTERVAL: Duration = Duration::from_secs(15);
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn renew(kubeconfig: PathBuf, stored: StoredToken, clients: Clients) {
    let mut backoff = USUAL;
    let mut failing = false;
    let mut renewed: Option<Instant> = None;
    loop {
        tokio::time::sleep(jittered(POLL_INTERVAL)).await;
        // Another `join` may have replaced the token.
        let Some((path, credential, uid)) = join_credential(&kubeconfig, &stored) else {
            continue;
        };
        if let Err(why) = stored.settle(&path) {
            tracing::warn!("cannot pass the host's credential to clients: {why}");
        }
        if !is_due(
            &credential,
            Timestamp::now(),
            renewed.map(|at| at.elapsed()),
        ) {
            continue;
        }
        match request(&clients, &credential, &uid, (&stored, &path)).await {
            Ok(next) => {
                tracing::info!(until = %next.expires, "renewed the credential of this host");
                (failing, renewed) = (false, Some(Instant::now()));
                backoff.reset();
            }
            Err(why) => {
                let expired = credential.expires <= Timestamp::now();
                if expired && !failing {
                    tracing::error!(
                        "the credential of this host expired at {} and could not be renewed: {why}. Envoy keeps serving; join again with a new token (`sesame-agent join --replace`)",
                        credential.expires
                    );
                } else if !failing {
                    tracing::warn!(until = %credential.expires, "cannot renew the credential of this host now: {why}");
                }
                failing = true;
                tokio::time::sleep(jittered(backoff.next_pause())).await;
            }
        }
    }
}

/// Returns `None` if `join` did not store the token.
fn join_credential(
    kubeconfig: &Path,
    stored: &StoredToken,
) -> Option<(PathBuf, Credential, String)> {
    let path = kubeconfig::token_file(kubeconfig)?;
    let text = stored.read(&path).ok()??;
    let credential = Credential::parse(&text)?;
    let (name, uid) = credential.secret.clone()?;
    let is_ours = credential.account.starts_with(HOST_PREFIX) && name == credential.account;
    is_ours.then_some((path, credential, uid))
}

pub(super) fn reseal(kubeconfig: &Path, stored: &StoredToken) {
    if let Some((path, ..)) = join_credential(kubeconfig, stored)
        && let Err(why) = stored.reseal(&path)
    {
        tracing::warn!("cannot seal the credential of this host: {why}");
    }
}

/// `renewed` is the time since the last renewal. After a renewal, waits at least a quarter of the
/// lifetime, regardless of the clock.
fn is_due(credential: &Credential, now: Timestamp, renewed: Option<Duration>) -> bool {
    let life = credential.lifetime_seconds();
    let passed = renewed.map(|passed| i64::try_from(passed.as_secs()).unwrap_or(i64::MAX));
    if passed.is_some_and(|passed| passed < life / 4) {
        return false;
    }
    let half = credential
        .issued
        .checked_add(SignedDuration::from_secs(life / 2));
    half.is_ok_and(|half| now >= half) || passed.is_some_and(|passed| passed >= life / 2)
}

async fn request(
    clients: &Clients,
    credential: &Credential,
    uid: &str,
    (stored, path): (&StoredToken, &Path),
) -> Result<Credential, String> {
    stored.check()?;
    let client = clients.borrow().clone();
    let client = client.ok_or_else(|| "the cluster has not been reached yet".to_owned())?;
    let Credential {
        namespace, account, ..
    } = credential;
    let life = credential.lifetime_seconds();
    let asked = exchange::request(&client, namespace, account, uid, life);
    let token = match tokio::time::timeout(TIMEOUT, asked).await {
        Ok(result) => result.map_err(|error| describe_error(&error))?,
        Err(_) => return Err(format!("no response within {TIMEOUT:?}")),
    };
    let next = Credential::parse(&token).ok_or("the response is not a token")?;
    stored.store(path, &token)?;
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_is_renewed_at_half_life_without_looping() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let credential = Credential {
            issued: at(10_000),
            expires: at(11_000),
            namespace: String::new(),
            account: String::new(),
            secret: None,
        };
        let due = |now, renewed: Option<u64>| {
            is_due(&credential, at(now), renewed.map(Duration::from_secs))
        };
        assert!(!due(10_499, None));
        assert!(due(10_500, None));
        // The host's clock may be wrong, so ask the API server even if the credential seems
        // expired.
        assert!(due(20_000, None));
        assert!(!due(20_000, Some(249)));
        assert!(due(20_000, Some(250)));
        // The host's clock was set back.
        assert!(!due(0, Some(499)));
        assert!(due(0, Some(500)));
    }
}
