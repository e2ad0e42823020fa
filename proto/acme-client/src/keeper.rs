//! Keeps the requested certificates fresh: one order at a time, in the order of the plan.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sesame_acme::{
    Attempts, CertificateRequest, CertificateRequests, Challenge, HeldCertificate, IssuedPair,
    Pace, plan,
};
use sesame_kinds::api::NamespacedName;
use tokio::sync::watch;

use crate::order::{OrderError, order};
use crate::state::{AcmeState, CertificateState};

/// Name of the record with earlier attempts.
const ATTEMPTS: &str = "attempts";
/// Interval between looks at all Secrets.
const LOOK_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// Delay after failed reads.
const RETRY: Duration = Duration::from_secs(15);
/// Delays in seconds between attempts to write an issued certificate, which must not get lost.
const SAVE_DELAYS: [u64; 5] = [1, 5, 15, 60, 180];

/// Stores records and certificates, and serves challenges. Errors must not quote keys.
pub trait AcmeHost: Send + Sync {
    /// Reads a private record, or returns `None` if it does not exist.
    fn read_record(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Option<String>, String>> + Send;
    /// Writes a private record.
    fn write_record(
        &self,
        name: &str,
        text: &str,
    ) -> impl Future<Output = Result<(), String>> + Send;
    /// Looks at a requested Secret.
    fn find(
        &self,
        secret: &NamespacedName,
    ) -> impl Future<Output = Result<HeldCertificate, String>> + Send;
    /// Fails if `save` would fail. Called before an order, so that no certificate gets lost.
    fn can_save(
        &self,
        secret: &NamespacedName,
        request: &CertificateRequest,
    ) -> impl Future<Output = Result<(), String>> + Send;
    /// Writes a Secret. Must fail if another program created it.
    fn save(
        &self,
        secret: &NamespacedName,
        request: &CertificateRequest,
        pair: &IssuedPair,
    ) -> impl Future<Output = Result<(), String>> + Send;
    /// Removes challenges that an earlier process left behind.
    fn clear(&self) -> impl Future<Output = Result<(), String>> + Send;
    /// Serves a challenge.
    fn present(
        &self,
        challenge: &Challenge,
        request: &CertificateRequest,
    ) -> impl Future<Output = Result<(), String>> + Send;
    /// Waits until clients get the challenge's content.
    fn served(
        &self,
        challenge: &Challenge,
        request: &CertificateRequest,
    ) -> impl Future<Output = Result<(), String>> + Send;
    /// Stops serving a challenge.
    fn withdraw(&self, challenge: &Challenge) -> impl Future<Output = Result<(), String>> + Send;
    /// Adds a TXT record for a hostname.
    fn add_record(
        &self,
        hostname: &str,
        value: &str,
    ) -> impl Future<Output = Result<(), String>> + Send;
    /// Removes a TXT record.
    fn remove_record(
        &self,
        hostname: &str,
        value: &str,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

/// Orders certificates while `active` is true.
pub struct AcmeKeeper<H> {
    /// Storage, and the way to serve challenges.
    pub host: H,
    /// Requested certificates, or `None` if not yet known.
    pub requests: watch::Receiver<Option<Arc<CertificateRequests>>>,
    /// True while this keeper should order.
    pub active: watch::Receiver<bool>,
    /// Receives the state after each change.
    pub state: watch::Sender<Arc<AcmeState>>,
    /// Limits for orders.
    pub pace: Pace,
}

#[derive(Default)]
struct Memory {
    attempts: Attempts,
    held: BTreeMap<NamespacedName, HeldCertificate>,
    /// The request for which each Secret was last looked at.
    looked: BTreeMap<NamespacedName, CertificateRequest>,
    unreadable: BTreeMap<NamespacedName, String>,
    /// The last request that was attempted for each Secret.
    attempted: BTreeMap<NamespacedName, CertificateRequest>,
    is_restored: bool,
    /// Why earlier attempts are unknown, so that nothing is ordered.
    blocked: Option<String>,
}

impl Memory {
    /// A changed request may solve the problem, so it does not wait.
    fn hasten_changed(&mut self, requests: &CertificateRequests, now: Timestamp) {
        let attempts = &mut self.attempts;
        self.attempted.retain(|secret, last| {
            let request = requests.get(secret);
            let is_same = request.is_some_and(|now| {
                (&now.hostnames, &now.parents, &now.issuer)
                    == (&last.hostnames, &last.parents, &last.issuer)
            });
            if !is_same {
                attempts.hasten(secret, now);
            }
            is_same
        });
    }
}

impl<H: AcmeHost> AcmeKeeper<H> {
    /// Runs until a channel is closed.
    pub async fn run(mut self) {
        loop {
            if self.active.wait_for(|active| *active).await.is_err() {
                return;
            }
            let mut active = self.active.clone();
            let is_closed = tokio::select! {
                () = self.lead() => true,
                inactive = active.wait_for(|active| !*active) => inactive.is_err(),
            };
            // Another replica renews them now, so these times would become outdated.
            self.state
                .send_modify(|state| Arc::make_mut(state).certificates.clear());
            if is_closed {
                return;
            }
        }
    }

    /// Returns when the requests are closed.
    async fn lead(&mut self) {
        let mut memory = Memory::default();
        loop {
            let requests = self
                .requests
                .borrow_and_update()
                .clone()
                .unwrap_or_default();
            let Some(pause) = self.pass(&requests, &mut memory).await else {
                continue;
            };
            tokio::select! {
                changed = self.requests.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(pause) => memory.looked.clear(),
            }
        }
    }

    /// Returns the time until the next pass, or `None` after an order.
    async fn pass(&self, requests: &CertificateRequests, memory: &mut Memory) -> Option<Duration> {
        if requests.is_empty() {
            self.observe(requests, memory);
            return Some(LOOK_INTERVAL);
        }
        memory.blocked = self.restore(memory).await.err();
        if let Some(error) = &memory.blocked {
            tracing::warn!(%error, "cannot begin to order certificates; retrying");
            self.observe(requests, memory);
            return Some(RETRY);
        }
        memory.attempts.retain(requests);
        memory.hasten_changed(requests, Timestamp::now());
        self.look(requests, memory).await;
        let now = Timestamp::now();
        let plan = plan(now, requests, &memory.held, &memory.attempts, &self.pace);
        self.observe(requests, memory);
        let due = plan.due.first();
        if let Some((secret, request)) = due.and_then(|due| requests.get_key_value(due)) {
            self.order(secret, request, memory).await;
            return None;
        }
        let next = plan.next.map_or(LOOK_INTERVAL, |next| {
            Duration::try_from(next.duration_since(now)).unwrap_or_default()
        });
        let longest = if memory.unreadable.is_empty() {
            LOOK_INTERVAL
        } else {
            RETRY
        };
        Some(next.min(longest))
    }

    /// Does nothing until the first request, so that an unused feature needs no permissions.
    async fn restore(&self, memory: &mut Memory) -> Result<(), String> {
        if memory.is_restored {
            return Ok(());
        }
        let stored = self.host.read_record(ATTEMPTS).await?;
        // Damaged records count as empty; the limits of the CA still apply.
        let attempts = stored.and_then(|text| serde_json::from_str(&text).ok());
        memory.attempts = attempts.unwrap_or_default();
        // One object that cannot be removed must not stop all orders.
        if let Err(error) = self.host.clear().await {
            tracing::warn!(%error, "cannot remove earlier ACME challenges");
        }
        memory.is_restored = true;
        Ok(())
    }

    async fn look(&self, requests: &CertificateRequests, memory: &mut Memory) {
        let Memory {
            held,
            looked,
            unreadable,
            ..
        } = memory;
        held.retain(|secret, _| requests.contains_key(secret));
        looked.retain(|secret, request| requests.get(secret) == Some(request));
        unreadable.retain(|secret, _| requests.contains_key(secret));
        for (secret, request) in requests {
            if looked.contains_key(secret) {
                continue;
            }
            match self.host.find(secret).await {
                Ok(found) => {
                    held.insert(secret.clone(), found);
                    looked.insert(secret.clone(), request.clone());
                    unreadable.remove(secret);
                }
                Err(error) => {
                    held.remove(secret);
                    unreadable.insert(secret.clone(), error);
                }
            }
        }
    }

    async fn order(
        &self,
        secret: &NamespacedName,
        request: &CertificateRequest,
        memory: &mut Memory,
    ) {
        memory.looked.remove(secret);
        memory.attempted.insert(secret.clone(), request.clone());
        let ordered = self
            .order_and_save(secret, request, &mut memory.attempts)
            .await;
        let is_good = ordered.is_ok();
        match ordered {
            Ok(()) => memory.attempts.succeed(secret, Timestamp::now()),
            Err(error) => {
                let OrderError {
                    message,
                    is_limited,
                    retry_after,
                } = error;
                tracing::warn!(%secret, error = message, "cannot order a certificate; retrying");
                memory.attempts.fail(
                    secret,
                    &request.issuer.directory,
                    &message,
                    (retry_after, is_limited),
                    &self.pace,
                    Timestamp::now(),
                );
            }
        }
        if let Err(error) = self.store(&memory.attempts).await {
            tracing::warn!(%error, "cannot store the attempts to order certificates");
        }
        self.state.send_modify(|state| {
            let state = Arc::make_mut(state);
            state.orders += 1;
            state.failures += u64::from(!is_good);
        });
    }

    async fn store(&self, attempts: &Attempts) -> Result<(), OrderError> {
        let text = serde_json::to_string(&attempts.stored());
        let text = text.map_err(|error| OrderError::new(error.to_string()))?;
        let written = self.host.write_record(ATTEMPTS, &text).await;
        written.map_err(OrderError::new)
    }

    async fn order_and_save(
        &self,
        secret: &NamespacedName,
        request: &CertificateRequest,
        attempts: &mut Attempts,
    ) -> Result<(), OrderError> {
        let can_save = self.host.can_save(secret, request).await;
        can_save.map_err(OrderError::new)?;
        attempts.begin(secret, Timestamp::now());
        self.store(attempts).await?;
        let pair = order(&self.host, secret, request).await?;
        let saved = self.save(secret, request, &pair).await;
        saved.map_err(OrderError::new)?;
        tracing::info!(%secret, "ordered a certificate");
        Ok(())
    }

    async fn save(
        &self,
        secret: &NamespacedName,
        request: &CertificateRequest,
        pair: &IssuedPair,
    ) -> Result<(), String> {
        for delay in SAVE_DELAYS {
            let Err(error) = self.host.save(secret, request, pair).await else {
                return Ok(());
            };
            if matches!(self.host.find(secret).await, Ok(HeldCertificate::Foreign)) {
                return Err(error);
            }
            tracing::warn!(%secret, error, "cannot write an issued certificate; retrying");
            tokio::time::sleep(Duration::from_secs(delay)).await;
        }
        self.host.save(secret, request, pair).await
    }

    fn observe(&self, requests: &CertificateRequests, memory: &Memory) {
        let certificates = requests.iter().map(|(secret, request)| {
            let (expires, foreign) = match memory.held.get(secret) {
                Some(HeldCertificate::Issued { facts, .. }) => (Some(facts.not_after), false),
                Some(HeldCertificate::Foreign) => (None, true),
                Some(HeldCertificate::Missing) | None => (None, false),
            };
            let state = CertificateState {
                requesters: request.requesters.clone(),
                expires,
                problem: problem(secret, expires, foreign, memory),
            };
            (secret.clone(), state)
        });
        let certificates = certificates.collect();
        self.state.send_if_modified(|state| {
            let differs = state.certificates != certificates;
            if differs {
                Arc::make_mut(state).certificates = certificates;
            }
            differs
        });
    }
}

fn problem(
    secret: &NamespacedName,
    expires: Option<Timestamp>,
    is_foreign: bool,
    memory: &Memory,
) -> Option<String> {
    if let Some(why) = &memory.blocked {
        return Some(format!(
            "no certificate is ordered for Secret {secret}, because the record of earlier attempts \
             cannot be read: {why}; check the permissions; retrying every {RETRY:?}"
        ));
    }
    if let Some(why) = memory.unreadable.get(secret) {
        return Some(format!("Secret {secret} cannot be read: {why}"));
    }
    if is_foreign {
        return Some(format!(
            "no certificate is ordered for Secret {secret}, because Sesame did not create it; \
             delete the Secret, or remove the annotation from the Gateway or ListenerSet"
        ));
    }
    let failure = memory.attempts.failures.get(&secret.to_string())?;
    let kept = expires.map_or_else(String::new, |time| {
        format!("; the last certificate stays in use, and expires at {time:.0}")
    });
    Some(format!(
        "cannot order a certificate for Secret {secret}: {}{kept}; retrying at {:.0}",
        failure.message, failure.retry_at
    ))
}

#[cfg(test)]
mod tests {
    use sesame_acme::ChallengeMethod;

    use super::*;
    use crate::order::tests::request;

    #[test]
    fn unknown_attempts_are_a_problem() {
        let memory = Memory {
            blocked: Some("403".to_owned()),
            ..Memory::default()
        };
        let secret = NamespacedName::new("shop", "tls");
        let why = problem(&secret, None, false, &memory).unwrap();
        assert!(why.contains("cannot be read: 403; check"), "{why}");
    }

    #[test]
    fn changed_requests_keep_failure_count() {
        let secret = NamespacedName::new("shop", "tls");
        let now = Timestamp::now();
        let before = request(ChallengeMethod::Http01, &["a.test"]);
        let mut memory = Memory::default();
        memory.attempted.insert(secret.clone(), before.clone());
        let (told, pace) = ((None, false), Pace::default());
        let attempts = &mut memory.attempts;
        attempts.fail(&secret, "https://ca.test", "no", told, &pace, now);
        let due = |memory: &Memory| {
            let failure = &memory.attempts.failures[&secret.to_string()];
            assert_eq!(failure.count, 1);
            failure.retry_at <= now
        };
        memory.hasten_changed(&BTreeMap::from([(secret.clone(), before)]), now);
        assert!(!due(&memory));
        let after = request(ChallengeMethod::Http01, &["b.test"]);
        memory.hasten_changed(&BTreeMap::from([(secret.clone(), after)]), now);
        assert!(due(&memory));
    }
}
