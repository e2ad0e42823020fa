//! Orders certificates by ACME for a host with manifests.
//!
//! Issued pairs become Secrets, and pending challenges become HTTPRoutes, in the world only: the
//! directory with the manifests is never changed. Objects in manifests take precedence.

mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sesame_acme::{
    ACME_KEY, CertificateRequest, CertificateRequests, Challenge, ChallengeParent, HeldCertificate,
    IssuedPair, Pace,
};
use sesame_acme_client::{AcmeHost, AcmeKeeper, AcmeState, DnsHook, OrderError, probe, stand_in};
use sesame_kinds::api::{Metadata, NamespacedName, Secret, SecretBytes};
use sesame_kinds::decode::decode_value;
use sesame_kinds::world::AnyObject;
use tokio::sync::watch;

use self::store::{AcmeFiles, StoredPair};
use crate::seal::SealingKeys;

/// How long the Gateway may take to serve a challenge.
const SERVED_TIMEOUT: Duration = Duration::from_secs(60);
const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// Returns the sockets at which a challenge can be requested.
pub type FindSockets = Arc<dyn Fn(&BTreeSet<ChallengeParent>) -> Vec<SocketAddr> + Send + Sync>;

/// Settings for orders on this host.
#[derive(Clone)]
pub struct AcmeHostSettings {
    /// Directory for accounts and issued certificates, created on first use.
    pub directory: PathBuf,
    /// Keys that seal the files.
    pub sealing: Arc<SealingKeys>,
    /// Program that changes DNS records.
    pub dns_hook: Option<PathBuf>,
    /// Finds the Gateways' sockets.
    pub sockets: FindSockets,
}

/// Requests for certificates, and the objects that result.
#[derive(Debug)]
pub struct AcmeCertificates {
    requests: watch::Sender<Option<Arc<CertificateRequests>>>,
    objects: watch::Receiver<AcmeObjects>,
    state: watch::Receiver<Arc<AcmeState>>,
}

#[derive(Clone, Debug, Default)]
struct AcmeObjects {
    secrets: BTreeMap<NamespacedName, AnyObject>,
    challenges: BTreeMap<NamespacedName, Vec<AnyObject>>,
}

impl AcmeCertificates {
    /// The returned future orders certificates until it is dropped.
    pub fn load(settings: AcmeHostSettings) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let AcmeHostSettings {
            directory,
            sealing,
            dns_hook,
            sockets,
        } = settings;
        let files = AcmeFiles::new(directory, sealing);
        let loaded = files.load();
        let secrets = loaded
            .iter()
            .map(|(name, pair)| (name.clone(), secret(name, &pair.chain, &pair.key)));
        let (sender, objects) = watch::channel(AcmeObjects {
            secrets: secrets.collect(),
            challenges: BTreeMap::new(),
        });
        let (requests, requested) = watch::channel(None);
        let (observed, state) = watch::channel(Arc::default());
        // Keep the sender, so that the channel stays open.
        let (always, active) = watch::channel(true);
        let keeper = AcmeKeeper {
            host: LocalHost {
                files,
                hook: dns_hook.map(DnsHook),
                sockets,
                objects: sender,
            },
            requests: requested,
            active,
            state: observed,
            pace: Pace::default(),
        };
        let ordering = async move {
            keeper.run().await;
            drop(always);
        };
        let handle = Self {
            requests,
            objects,
            state,
        };
        (handle, ordering)
    }

    /// Replaces all previous requests.
    pub fn request(&self, requests: CertificateRequests) {
        let requests = Some(Arc::new(requests));
        self.requests.send_if_modified(|known| {
            let differs = *known != requests;
            *known = requests;
            differs
        });
    }

    /// Returns the objects to add to the world.
    pub fn objects(&mut self) -> Vec<AnyObject> {
        let AcmeObjects {
            secrets,
            challenges,
        } = &*self.objects.borrow_and_update();
        let challenges = challenges.values().flatten();
        secrets.values().chain(challenges).cloned().collect()
    }

    /// Returns the state of all orders.
    pub fn state(&self) -> Arc<AcmeState> {
        Arc::clone(&self.state.borrow())
    }

    /// Waits until the objects or the state change, or forever if nothing is ordered any more.
    pub async fn changed(&mut self) {
        let is_closed = tokio::select! {
            changed = self.objects.changed() => changed.is_err(),
            changed = self.state.changed() => changed.is_err(),
        };
        if is_closed {
            std::future::pending::<()>().await;
        }
    }
}

/// Returns a self-signed Secret for each request whose Secret does not exist, for previews only.
pub fn stand_ins(requests: &CertificateRequests) -> Result<Vec<AnyObject>, OrderError> {
    let missing = requests.iter().filter(|(_, request)| !request.exists);
    let stand_ins = missing.map(|(name, request)| {
        let IssuedPair { chain, key } = stand_in(&request.hostnames)?;
        Ok(secret(name, &chain, &key))
    });
    stand_ins.collect()
}

fn secret(name: &NamespacedName, chain: &str, key: &str) -> AnyObject {
    let data = [("tls.crt", chain), ("tls.key", key)];
    let data = data.map(|(key, text)| (key.to_owned(), SecretBytes(text.as_bytes().to_vec())));
    AnyObject::Secret(Arc::new(Secret {
        metadata: Metadata {
            namespace: name.namespace.clone(),
            name: name.name.clone(),
            labels: [(ACME_KEY, "certificate")].into_iter().collect(),
            ..Metadata::default()
        },
        type_: "kubernetes.io/tls".to_owned(),
        data: BTreeMap::from(data),
        ..Secret::default()
    }))
}

struct LocalHost {
    files: AcmeFiles,
    hook: Option<DnsHook>,
    sockets: FindSockets,
    objects: watch::Sender<AcmeObjects>,
}

impl LocalHost {
    fn hook(&self) -> Result<&DnsHook, String> {
        self.hook.as_ref().ok_or_else(|| {
            "spec.acme.challenge DNS01 needs a program that changes DNS records; set acme-dns-hook \
             in this host's settings"
                .to_owned()
        })
    }
}

impl AcmeHost for LocalHost {
    async fn read_record(&self, name: &str) -> Result<Option<String>, String> {
        self.files.read_record(name)
    }

    async fn write_record(&self, name: &str, text: &str) -> Result<(), String> {
        self.files.write_record(name, text)
    }

    async fn find(&self, secret: &NamespacedName) -> Result<HeldCertificate, String> {
        // The resolver requests no Secret that a manifest declares.
        Ok(self.files.find(secret))
    }

    async fn can_save(&self, _: &NamespacedName, _: &CertificateRequest) -> Result<(), String> {
        // Each order begins with a write to the same directory.
        Ok(())
    }

    async fn save(
        &self,
        name: &NamespacedName,
        request: &CertificateRequest,
        pair: &IssuedPair,
    ) -> Result<(), String> {
        let IssuedPair { chain, key } = pair;
        let pair = StoredPair {
            secret: name.clone(),
            directory: request.issuer.directory.clone(),
            chain: chain.clone(),
            key: key.clone(),
        };
        let object = secret(name, &pair.chain, &pair.key);
        // Without a copy on disk, each restart would order again.
        self.files.save(&pair)?;
        self.objects.send_modify(|objects| {
            objects.secrets.insert(name.clone(), object);
        });
        Ok(())
    }

    async fn clear(&self) -> Result<(), String> {
        self.objects.send_if_modified(|objects| {
            let differs = !objects.challenges.is_empty();
            objects.challenges.clear();
            differs
        });
        Ok(())
    }

    async fn present(
        &self,
        challenge: &Challenge,
        request: &CertificateRequest,
    ) -> Result<(), String> {
        let objects = challenge.objects(request).into_iter().map(|object| {
            let version = object
                .kind
                .api_versions()
                .first()
                .copied()
                .unwrap_or_default();
            let decoded = decode_value(object.value, object.kind, version);
            decoded
                .map(|decoded| decoded.object)
                .map_err(|error| error.to_string())
        });
        let objects = objects.collect::<Result<Vec<AnyObject>, String>>()?;
        self.objects.send_modify(|known| {
            known.challenges.insert(challenge.object_name(), objects);
        });
        Ok(())
    }

    async fn served(
        &self,
        challenge: &Challenge,
        request: &CertificateRequest,
    ) -> Result<(), String> {
        let mut last = String::new();
        let served = async {
            loop {
                let sockets = (self.sockets)(&request.parents);
                if sockets.is_empty() {
                    "no Envoy of the Gateway listens yet".clone_into(&mut last);
                }
                for socket in sockets {
                    match probe(socket, challenge).await {
                        Ok(()) => return,
                        Err(error) => last = error.message,
                    }
                }
                tokio::time::sleep(PROBE_INTERVAL).await;
            }
        };
        let outcome = tokio::time::timeout(SERVED_TIMEOUT, served).await;
        outcome.map_err(|_| {
            format!(
                "this host does not serve the challenge, so the CA was not asked to validate: \
                 {last}; check the Gateway's HTTP listener, and the policies that apply to it"
            )
        })
    }

    async fn withdraw(&self, challenge: &Challenge) -> Result<(), String> {
        self.objects.send_modify(|known| {
            known.challenges.remove(&challenge.object_name());
        });
        Ok(())
    }

    async fn add_record(&self, hostname: &str, value: &str) -> Result<(), String> {
        self.hook()?.run("present", hostname, value).await
    }

    async fn remove_record(&self, hostname: &str, value: &str) -> Result<(), String> {
        self.hook()?.run("cleanup", hostname, value).await
    }
}
