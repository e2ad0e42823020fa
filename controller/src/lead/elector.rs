//! Acquires, renews and releases the Lease.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::PostParams;
use tokio::sync::watch;

use super::decide::{LeaseStep, Record, decide};
use super::holder::{Ended, ended};
use crate::connection::answer;
use crate::replica::{Replica, replace};

const NAME: &str = "sesame-controller";

#[derive(Default)]
struct Known {
    /// Latest record, and when this replica first saw it.
    seen: Option<(Record, Instant)>,
    /// The Lease as this replica last wrote it, or `None` if another replica has written it since.
    ours: Option<Lease>,
}

impl Known {
    fn wrote(&mut self, lease: Lease) {
        self.seen = Some((record(&lease), Instant::now()));
        self.ours = Some(lease);
    }
}

pub(crate) struct Elector {
    pub(crate) replica: Replica,
    /// Another replica takes over after this time without a renewal.
    pub(crate) duration: Duration,
    pub(crate) leading: watch::Sender<bool>,
}

impl Elector {
    /// Runs until `stop` completes, then releases the Lease.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) {
        let api: Api<Lease> = Api::namespaced(self.replica.client.clone(), &self.replica.namespace);
        // Stop leading early, which leaves a third of the duration for pending writes.
        let deadline = self.duration * 2 / 3;
        let pause = self.duration / 6;
        let mut known = Known::default();
        let mut held_until: Option<Instant> = None;
        let mut stop = std::pin::pin!(stop);
        loop {
            let asked = Instant::now();
            let limit = held_until.map_or(deadline, |until| until.saturating_duration_since(asked));
            let result = tokio::select! {
                result = tokio::time::timeout(limit, self.step(&api, &mut known)) => result,
                () = &mut stop => break,
            };
            let answers = matches!(&result, Ok(Ok(_)));
            self.replica.metrics.api_server_answers(answers);
            if answers {
                self.replica.failures.answered();
            }
            match result {
                Ok(Ok(true)) => {
                    held_until = Some(asked + deadline);
                    self.lead(true);
                }
                Ok(Ok(false)) => {
                    held_until = None;
                    self.lead(false);
                }
                Ok(Err(error)) => self.replica.failures.record("Lease", &error),
                Err(_) => self
                    .replica
                    .failures
                    .record("Lease", &"no response in time"),
            }
            if held_until.is_some_and(|until| Instant::now() >= until) {
                held_until = None;
                self.lead(false);
            }
            let wait = held_until.map_or(pause, |until| {
                pause.min(until.saturating_duration_since(Instant::now()))
            });
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = &mut stop => break,
            }
        }
        let led = *self.leading.borrow();
        self.lead(false);
        if led {
            self.give_up(&api, deadline).await;
        }
    }

    fn lead(&self, now: bool) {
        let changed = replace(&self.leading, now);
        self.replica.metrics.leads(now);
        let identity = &self.replica.identity;
        match (changed, now) {
            (true, true) => tracing::info!(identity, "this replica leads"),
            (true, false) => tracing::info!(identity, "this replica no longer leads"),
            (false, _) => {}
        }
    }

    /// Returns true if this replica now holds the Lease.
    async fn step(&self, api: &Api<Lease>, known: &mut Known) -> kube::Result<bool> {
        // The holder writes without reading first. The request fails if another writer has changed
        // the Lease.
        if let Some(lease) = known.ours.take() {
            let lease = self.lease(lease.spec, lease.metadata);
            match api.replace(NAME, &PostParams::default(), &lease).await {
                Ok(lease) => {
                    known.wrote(lease);
                    return Ok(true);
                }
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(error),
            }
        }
        let seen = &mut known.seen;
        let lease = api.get_opt(NAME).await?;
        let now = Instant::now();
        let record = lease.as_ref().map(record);
        match (&record, &seen) {
            (Some(record), Some((known, _))) if known == record => {}
            (Some(record), _) => *seen = Some((record.clone(), now)),
            (None, _) => *seen = None,
        }
        let since = seen.as_ref().map_or(now, |(_, since)| *since);
        let me = &self.replica.identity;
        let ended = record
            .as_ref()
            .map_or(Ended::Unknown, |it| ended(&it.holder, me));
        let step = decide(record.as_ref(), me, ended, since, now);
        let written = match (step, lease) {
            (LeaseStep::Wait, _) => return Ok(false),
            (LeaseStep::Create, _) | (_, None) => {
                let lease = self.lease(None, ObjectMeta::default());
                api.create(&PostParams::default(), &lease).await
            }
            (LeaseStep::Take | LeaseStep::Renew, Some(lease)) => {
                let Lease { metadata, spec } = lease;
                let spec = spec.unwrap_or_default();
                let lease = self.lease(Some(spec).filter(|_| step == LeaseStep::Renew), metadata);
                api.replace(NAME, &PostParams::default(), &lease).await
            }
        };
        match written {
            Ok(lease) => {
                known.wrote(lease);
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// `before` is the current content if this replica already holds the Lease.
    fn lease(&self, before: Option<LeaseSpec>, mut metadata: ObjectMeta) -> Lease {
        metadata.name = Some(NAME.to_owned());
        metadata.managed_fields = None;
        let now = MicroTime(Timestamp::now());
        let spec = before.unwrap_or_else(|| LeaseSpec {
            acquire_time: Some(now.clone()),
            ..LeaseSpec::default()
        });
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.replica.identity.clone()),
                lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
                renew_time: Some(now),
                ..spec
            }),
        }
    }

    /// Lets the next leader start without waiting for the Lease to expire.
    async fn give_up(&self, api: &Api<Lease>, limit: Duration) {
        let give_up = async {
            if let Some(mut lease) = api.get_opt(NAME).await?
                && record(&lease).holder == self.replica.identity
                && let Some(spec) = &mut lease.spec
            {
                spec.holder_identity = Some(String::new());
                api.replace(NAME, &PostParams::default(), &lease).await?;
            }
            Ok(())
        };
        match answer(limit, give_up).await {
            Ok(()) => tracing::info!("released the Lease"),
            Err(error) => tracing::warn!(%error, "cannot release the Lease; it will expire"),
        }
    }
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.as_ref();
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
    Record {
        holder: spec
            .and_then(|spec| spec.holder_identity.clone())
            .unwrap_or_default(),
        // Cap the duration, because another writer might have set it.
        duration: Duration::from_secs(seconds.unwrap_or(15).clamp(1, 600).unsigned_abs().into()),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}
