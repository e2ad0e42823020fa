//! One order: challenges, validation, a new key, and the certificate.

use std::collections::BTreeSet;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Error, Identifier, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PublicKeyData as _};
use sesame_acme::{CertificateRequest, Challenge, ChallengeMethod, IssuedPair};
use sesame_kinds::api::NamespacedName;

use crate::account;
use crate::http::RetryAfter;
use crate::keeper::AcmeHost;

/// Why an order failed. Never contains key material.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OrderError {
    /// The problem, and how to solve it if that is known.
    pub message: String,
    /// True if the CA reported a rate limit.
    pub is_limited: bool,
    /// Delay that the CA asked for.
    pub retry_after: Option<Duration>,
}

impl OrderError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            is_limited: false,
            retry_after: None,
        }
    }
}

impl From<Error> for OrderError {
    fn from(error: Error) -> Self {
        let is_limited = matches!(
            &error,
            Error::Api(problem) if problem.r#type.as_deref() == Some(RATE_LIMITED)
        );
        Self {
            message: format!("the CA: {error}"),
            is_limited,
            retry_after: None,
        }
    }
}

const RATE_LIMITED: &str = "urn:ietf:params:acme:error:rateLimited";
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";
const NEEDS_EXTERNAL: &str = "urn:ietf:params:acme:error:externalAccountRequired";
/// Timeout for an order, or for each of its hostnames if the operator's program adds records.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Added for each hostname over HTTP, because the challenges are requested one after another.
const FOR_HOSTNAME: Duration = Duration::from_secs(30);
/// How long hosts may take to serve all challenges of an order.
const ALL_SERVED: Duration = Duration::from_secs(240);
/// How long the CA may take to validate, and to issue.
const POLL: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

/// Challenges that must always be removed after an order.
#[derive(Default)]
struct Presented {
    http: Vec<Challenge>,
    dns: Vec<(String, String)>,
}

pub(crate) async fn order(
    host: &impl AcmeHost,
    secret: &NamespacedName,
    request: &CertificateRequest,
) -> Result<IssuedPair, OrderError> {
    let retry_after = RetryAfter::default();
    let mut presented = Presented::default();
    let issuing = issue(host, secret, request, &retry_after, &mut presented);
    let deadline = deadline(request);
    // Challenges are removed after it.
    let issued = tokio::time::timeout(deadline, issuing).await;
    let issued = issued.unwrap_or_else(|_| {
        Err(OrderError::new(format!(
            "the order was not complete in {deadline:?}"
        )))
    });
    let Presented { http, dns } = presented;
    for challenge in http {
        if let Err(error) = host.withdraw(&challenge).await {
            let name = challenge.object_name();
            tracing::warn!(%name, %error, "cannot remove the objects of an ACME challenge");
        }
    }
    for (hostname, value) in dns {
        if let Err(error) = host.remove_record(&hostname, &value).await {
            tracing::warn!(%hostname, %error, "cannot remove the TXT record of an ACME challenge");
        }
    }
    issued.map_err(|error| explained(error, request, retry_after.take()))
}

fn deadline(request: &CertificateRequest) -> Duration {
    let hostnames = u32::try_from(request.hostnames.len()).unwrap_or(u32::MAX);
    match request.issuer.method {
        ChallengeMethod::Http01 => TIMEOUT + FOR_HOSTNAME.saturating_mul(hostnames),
        ChallengeMethod::Dns01 => TIMEOUT.saturating_mul(hostnames.max(1)),
    }
}

/// A CA that asks for a delay is overloaded, or has a limit.
fn explained(
    error: OrderError,
    request: &CertificateRequest,
    retry_after: Option<Duration>,
) -> OrderError {
    let OrderError {
        mut message,
        is_limited,
        retry_after: _,
    } = error;
    if message.contains(NO_ACCOUNT) {
        let record = account::record_name(&request.issuer);
        message = format!(
            "{message}; remove {record} from the controller's Secret sesame-acme-…, or the file \
             record-{record} from acme in the agent's state directory, to create another account"
        );
    }
    if message.contains(NEEDS_EXTERNAL) {
        message.push_str("; set spec.acme.externalAccount to your account with the CA");
    }
    OrderError {
        message,
        is_limited: is_limited || retry_after.is_some(),
        retry_after,
    }
}

async fn issue(
    host: &impl AcmeHost,
    secret: &NamespacedName,
    request: &CertificateRequest,
    retry_after: &RetryAfter,
    presented: &mut Presented,
) -> Result<IssuedPair, OrderError> {
    let account = account::open(host, &request.issuer, retry_after).await?;
    let mut order = new_order(&account, &request.hostnames).await?;
    if deactivate_valid(&mut order).await? {
        order = new_order(&account, &request.hostnames).await?;
    }
    present_all(host, secret, request, &mut order, presented).await?;
    all_served(host, request, &presented.http).await?;
    accept_all(request.issuer.method, &mut order).await?;
    if order.poll_ready(&POLL).await? != OrderStatus::Ready {
        return Err(refusal(&mut order).await);
    }
    let (key, parameters) = key_for(&request.hostnames)?;
    let signing_request = parameters
        .serialize_request(&key)
        .map_err(|error| internal(&error))?;
    order.finalize_csr(signing_request.der()).await?;
    let pair = IssuedPair {
        chain: order.poll_certificate(&POLL).await?,
        key: key.serialize_pem(),
    };
    let public = key.subject_public_key_info();
    let checked = pair.check(&request.hostnames, &public, Timestamp::now());
    checked.map_err(|error| OrderError::new(error.to_string()))?;
    Ok(pair)
}

fn key_for(hostnames: &BTreeSet<String>) -> Result<(KeyPair, CertificateParams), OrderError> {
    let key = KeyPair::generate().map_err(|error| internal(&error))?;
    let names: Vec<String> = hostnames.iter().cloned().collect();
    let mut parameters = CertificateParams::new(names).map_err(|error| internal(&error))?;
    parameters.distinguished_name = DistinguishedName::new();
    Ok((key, parameters))
}

/// Returns a self-signed pair, which previews show instead of one that is not yet ordered.
pub fn stand_in(hostnames: &BTreeSet<String>) -> Result<IssuedPair, OrderError> {
    let (key, parameters) = key_for(hostnames)?;
    let certificate = parameters
        .self_signed(&key)
        .map_err(|error| internal(&error))?;
    Ok(IssuedPair {
        chain: certificate.pem(),
        key: key.serialize_pem(),
    })
}

fn internal(error: &rcgen::Error) -> OrderError {
    OrderError::new(format!("cannot create a key: {error}"))
}

async fn new_order(account: &Account, hostnames: &BTreeSet<String>) -> Result<Order, OrderError> {
    let identifiers = hostnames.iter().cloned().map(Identifier::Dns);
    let identifiers: Vec<Identifier> = identifiers.collect();
    Ok(account.new_order(&NewOrder::new(&identifiers)).await?)
}

/// Other orders wait for this one, so slow answers for many hostnames must not add up.
async fn all_served(
    host: &impl AcmeHost,
    request: &CertificateRequest,
    challenges: &[Challenge],
) -> Result<(), OrderError> {
    let all = async {
        for challenge in challenges {
            let served = host.served(challenge, request).await;
            served.map_err(OrderError::new)?;
        }
        Ok(())
    };
    let served = tokio::time::timeout(ALL_SERVED, all).await;
    served.unwrap_or_else(|_| {
        Err(OrderError::new(format!(
            "the challenges of all {} hostnames were not served in {ALL_SERVED:?}, so the CA was \
             not asked to validate; use fewer hostnames per Secret",
            challenges.len()
        )))
    })
}

/// Returns true if there were valid authorizations. All namespaces share the account, so an earlier
/// validation must not give another namespace a certificate.
async fn deactivate_valid(order: &mut Order) -> Result<bool, OrderError> {
    let mut is_changed = false;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status != AuthorizationStatus::Valid {
            continue;
        }
        match authorization.deactivate().await {
            Ok(_) => is_changed = true,
            // Only the operator can use it then.
            Err(error) => tracing::debug!(%error, "the CA keeps a valid authorization"),
        }
    }
    Ok(is_changed)
}

async fn present_all(
    host: &impl AcmeHost,
    secret: &NamespacedName,
    request: &CertificateRequest,
    order: &mut Order,
    presented: &mut Presented,
) -> Result<(), OrderError> {
    let kind = kind(request.issuer.method);
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        match authorization.status {
            AuthorizationStatus::Valid if request.is_operators => continue,
            AuthorizationStatus::Valid => {
                let hostname = authorization.identifier();
                return Err(OrderError::new(format!(
                    "the CA needs no proof for {hostname}, so only the operator may order it; use \
                     a Gateway in the namespace of the SesameConfiguration that sets spec.acme"
                )));
            }
            AuthorizationStatus::Pending => {}
            status => return Err(OrderError::new(format!("an authorization is {status:?}"))),
        }
        let Some(challenge) = authorization.challenge(kind.clone()) else {
            return Err(OrderError::new(format!(
                "the CA offers no {kind:?} challenge; choose another spec.acme.challenge"
            )));
        };
        let Identifier::Dns(hostname) = challenge.identifier().identifier.clone() else {
            return Err(OrderError::new(
                "the CA asks to validate a name that is not a hostname",
            ));
        };
        // The CA must not make the Gateway serve other hosts.
        let wildcard = format!("*.{hostname}");
        if !request.hostnames.contains(&hostname) && !request.hostnames.contains(&wildcard) {
            let why = format!("the CA asks to validate {hostname:?}, which was not ordered");
            return Err(OrderError::new(why));
        }
        let answer = challenge.key_authorization();
        match request.issuer.method {
            ChallengeMethod::Http01 => {
                let namespace = &secret.namespace;
                let token = &challenge.token;
                let http = Challenge::new(namespace, &hostname, token, answer.as_str());
                let http = http.map_err(|error| OrderError::new(error.to_string()))?;
                presented.http.push(http.clone());
                host.present(&http, request)
                    .await
                    .map_err(OrderError::new)?;
            }
            ChallengeMethod::Dns01 => {
                let record = (hostname, answer.dns_value());
                presented.dns.push(record.clone());
                let added = host.add_record(&record.0, &record.1).await;
                added.map_err(OrderError::new)?;
            }
        }
    }
    Ok(())
}

async fn accept_all(method: ChallengeMethod, order: &mut Order) -> Result<(), OrderError> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Pending
            && let Some(mut challenge) = authorization.challenge(kind(method))
        {
            challenge.set_ready().await?;
        }
    }
    Ok(())
}

fn kind(method: ChallengeMethod) -> ChallengeType {
    match method {
        ChallengeMethod::Http01 => ChallengeType::Http01,
        ChallengeMethod::Dns01 => ChallengeType::Dns01,
    }
}

/// Explains why the CA rejected the order. The reason is in the challenges.
async fn refusal(order: &mut Order) -> OrderError {
    let mut reasons = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            continue;
        }
        let failed = authorization
            .challenges
            .iter()
            .filter_map(|it| it.error.as_ref());
        reasons.extend(failed.map(ToString::to_string));
    }
    if reasons.is_empty() {
        reasons.push("the order is invalid, without a reason".to_owned());
    }
    OrderError::new(format!("the CA could not validate: {}", reasons.join("; ")))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use sesame_acme::AcmeIssuer;

    use super::*;

    pub(crate) fn request(method: ChallengeMethod, hostnames: &[&str]) -> CertificateRequest {
        CertificateRequest {
            requesters: BTreeSet::new(),
            hostnames: hostnames.iter().map(|&name| name.to_owned()).collect(),
            parents: BTreeSet::new(),
            issuer: AcmeIssuer {
                directory: "https://ca.test".to_owned(),
                email: None,
                method,
                ca_bundle: None,
                external: None,
            },
            is_operators: false,
            exists: false,
        }
    }

    #[test]
    fn deadline_grows_with_hostnames() {
        let names = ["a.test", "b.test", "c.test"];
        let deadline = |method, names| deadline(&request(method, names));
        let expected = TIMEOUT + FOR_HOSTNAME * 3;
        assert_eq!(deadline(ChallengeMethod::Http01, &names), expected);
        assert_eq!(deadline(ChallengeMethod::Dns01, &names), TIMEOUT * 3);
        assert_eq!(deadline(ChallengeMethod::Dns01, &[]), TIMEOUT);
    }

    #[test]
    fn errors_name_remedy_and_limit() {
        let request = request(ChallengeMethod::Http01, &["a.test"]);
        let delay = Some(Duration::from_secs(5));
        let found = explained(OrderError::new("503"), &request, delay);
        assert!(found.is_limited);
        assert_eq!(found.retry_after, delay);
        let error = OrderError::new(format!("the CA: API error ({NO_ACCOUNT})"));
        let found = explained(error, &request, None);
        assert!(!found.is_limited);
        let record = account::record_name(&request.issuer);
        let remedy = format!("; remove {record} from the controller's Secret");
        assert!(found.message.contains(&remedy), "{}", found.message);
        let error = OrderError::new(format!("the CA: API error ({NEEDS_EXTERNAL})"));
        let found = explained(error, &request, None);
        assert!(found.message.contains("spec.acme.externalAccount"));
    }
}
