//! Creates or restores the account at a CA. The account's key is kept in a record of the host.

use hyper::Uri;
use instant_acme::{Account, AccountCredentials, ExternalAccountKey, NewAccount};
use serde::{Deserialize, Serialize};
use sesame_acme::{AcmeIssuer, ExternalAccount};
use sesame_proto::digest::{sha256, sha256_of_all};

use crate::http::{CaClient, RetryAfter};
use crate::keeper::AcmeHost;
use crate::order::OrderError;

#[derive(Serialize, Deserialize)]
struct StoredAccount {
    email: Option<String>,
    credentials: AccountCredentials,
}

/// Records are named by digest, because a directory's URL is not a file name. Each external account
/// has its own ACME account.
pub(crate) fn record_name(issuer: &AcmeIssuer) -> String {
    let directory = issuer.directory.as_bytes();
    let mut digest = match &issuer.external {
        None => sha256(directory),
        Some(ExternalAccount { key_id, key: _ }) => {
            sha256_of_all(&[directory, b"\n", key_id.as_bytes()])
        }
    };
    digest.truncate(16);
    format!("account-{digest}")
}

/// `instant-acme` panics if it cannot parse the URL.
fn check_url(directory: &str) -> Result<(), OrderError> {
    let parsed = directory.parse::<Uri>().map(drop);
    parsed.map_err(|error| {
        OrderError::new(format!(
            "spec.acme.directory: {directory:?}: {error}; correct the URL"
        ))
    })
}

pub(crate) async fn open(
    host: &impl AcmeHost,
    issuer: &AcmeIssuer,
    retry_after: &RetryAfter,
) -> Result<Account, OrderError> {
    let AcmeIssuer {
        directory,
        email,
        method: _,
        ca_bundle,
        external,
    } = issuer;
    check_url(directory)?;
    let name = record_name(issuer);
    let stored = host.read_record(&name).await.map_err(OrderError::new)?;
    let http = || CaClient::new(ca_bundle.as_deref(), retry_after.clone()).map(Box::new);
    let contact = email.as_ref().map(|email| format!("mailto:{email}"));
    let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
    if let Some(stored) = stored {
        // The error must not quote the key.
        let damaged = || {
            OrderError::new(format!(
                "the stored account {name} is damaged; remove it to create another account"
            ))
        };
        let stored: StoredAccount = serde_json::from_str(&stored).map_err(|_| damaged())?;
        let StoredAccount {
            email: known,
            credentials,
        } = stored;
        let again = credentials_copy(&credentials, directory).ok_or_else(damaged)?;
        let account = Account::builder_with_http(http()?)
            .from_credentials(credentials)
            .await?;
        if known != *email {
            account.update_contacts(&contact).await?;
            save(host, &name, email.clone(), again).await?;
        }
        return Ok(account);
    }
    let new = NewAccount {
        contact: &contact,
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let external = external.as_ref().map(external_key).transpose()?;
    let created = Account::builder_with_http(http()?);
    let created = created.create(&new, directory.clone(), external.as_ref());
    let (account, credentials) = created.await?;
    save(host, &name, email.clone(), credentials).await?;
    tracing::info!(%directory, account = account.id(), "created an account at the CA");
    Ok(account)
}

fn external_key(account: &ExternalAccount) -> Result<ExternalAccountKey, OrderError> {
    let ExternalAccount { key_id, key } = account;
    let Some(key) = key else {
        return Err(OrderError::new(
            "no account can be created at the CA, because the Secret of spec.acme.externalAccount \
             is missing or invalid; the condition Accepted of the Gateway says why",
        ));
    };
    Ok(ExternalAccountKey::new(key_id.clone(), key.bytes()))
}

/// Returns `None` for an account of another directory, whose URL may be malformed.
fn credentials_copy(
    credentials: &AccountCredentials,
    directory: &str,
) -> Option<AccountCredentials> {
    let copy = serde_json::to_value(credentials).ok()?;
    let is_same = copy.get("directory")?.as_str()? == directory;
    is_same.then(|| serde_json::from_value(copy).ok()).flatten()
}

async fn save(
    host: &impl AcmeHost,
    name: &str,
    email: Option<String>,
    credentials: AccountCredentials,
) -> Result<(), OrderError> {
    let stored = StoredAccount { email, credentials };
    let text = serde_json::to_string(&stored);
    let text = text.map_err(|_| OrderError::new("the account cannot be stored"))?;
    host.write_record(name, &text)
        .await
        .map_err(OrderError::new)
}

#[cfg(test)]
mod tests {
    use sesame_acme::{ChallengeMethod, MacKey};

    use super::*;
    use crate::order::tests::request;

    #[test]
    fn malformed_directory_is_an_error() {
        assert_eq!(check_url("https://ca.test/directory"), Ok(()));
        for url in ["", "https://<your-ca>/directory"] {
            let why = check_url(url).unwrap_err().message;
            assert!(why.contains("correct the URL"), "{why}");
        }
    }

    #[test]
    fn account_of_other_directory_is_damaged() {
        let directory = "https://ca.test/directory";
        let stored = serde_json::json!({"id": "1", "key_pkcs8": "AAAA", "directory": directory});
        let credentials: AccountCredentials = serde_json::from_value(stored).unwrap();
        assert!(credentials_copy(&credentials, directory).is_some());
        assert!(credentials_copy(&credentials, "https://other.test").is_none());
    }

    #[test]
    fn external_accounts_have_records_of_their_own() {
        let mut issuer = request(ChallengeMethod::Http01, &[]).issuer;
        let plain = record_name(&issuer);
        assert_eq!(
            plain,
            format!("account-{}", &sha256(b"https://ca.test")[..16])
        );
        let mut external = |key_id: &str, key: Option<MacKey>| {
            let key_id = key_id.to_owned();
            issuer.external = Some(ExternalAccount { key_id, key });
            record_name(&issuer)
        };
        let first = external("a", None);
        assert_ne!(first, plain);
        assert_ne!(first, external("b", None));
        assert_eq!(first, external("a", MacKey::decode(b"AQ")));
    }

    #[test]
    fn external_account_without_key_is_an_error() {
        let account = ExternalAccount {
            key_id: "a".to_owned(),
            key: None,
        };
        let why = external_key(&account).map(drop).unwrap_err().message;
        assert!(why.contains("is missing or invalid"), "{why}");
    }
}
