//! Orders certificates by ACME for Gateways in the cluster. Only the leader orders.
//!
//! Never changes an object without the label and the controller's name: a Secret that another
//! program created or edited stays as it is. Accounts and attempts are in one Secret in the
//! controller's namespace.

mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DynamicObject, PostParams};
use kube::{Api, ResourceExt as _};
use sesame_acme::{
    ACME_KEY, CertificateRequest, CertificateRequests, Challenge, DIRECTORY_ANNOTATION,
    HeldCertificate, IssuedFacts, IssuedPair, Pace,
};
use sesame_acme_client::{AcmeHost, AcmeKeeper, AcmeState, DnsHook, ProbeError, probe};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{Kind, ObjectKey};
use sesame_proto::digest::sha256;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::objects::{
    CERTIFICATE, CONTROLLER_ANNOTATION, Written, addresses, explained, is_accepted, is_issued,
    owner, unprobed,
};
use crate::connection::answer;
use crate::replica::Replica;
use crate::watch::api_resource;

const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the hosts may take to serve a challenge.
const SERVED_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a challenge must be accepted before the CA is asked to validate although no address of
/// the Gateway answers this controller. Network policies may separate them.
const UNREACHABLE: Duration = Duration::from_secs(20);
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The task runs until the engine stops.
pub(crate) fn start_orders(
    replica: &Replica,
    requests: watch::Receiver<Option<Arc<CertificateRequests>>>,
    tasks: &mut JoinSet<()>,
) -> watch::Receiver<Arc<AcmeState>> {
    let (state, orders) = watch::channel(Arc::default());
    let keeper = AcmeKeeper {
        active: replica.leading.clone(),
        host: ClusterHost {
            replica: replica.clone(),
            dry_run: false,
        },
        requests,
        state,
        pace: Pace::default(),
    };
    tasks.spawn(keeper.run());
    orders
}

struct ClusterHost {
    replica: Replica,
    /// True if the API server only checks the write.
    dry_run: bool,
}

impl ClusterHost {
    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.replica.client.clone(), namespace)
    }

    /// Other controllers may share the namespace.
    fn records_name(&self) -> String {
        let mut digest = sha256(self.replica.controller_name.as_bytes());
        digest.truncate(16);
        format!("sesame-acme-{digest}")
    }

    async fn records(&self) -> Result<Option<Secret>, String> {
        let api = self.secrets(&self.replica.namespace);
        let found = answer(TIMEOUT, api.get_opt(&self.records_name())).await;
        found.map_err(|error| error.to_string())
    }

    fn parameters(&self) -> PostParams {
        PostParams {
            field_manager: Some(self.replica.field_manager().into_owned()),
            dry_run: self.dry_run,
        }
    }

    fn wrote(&self, kind: Kind, verb: &str) {
        if !self.dry_run {
            self.replica.metrics.published(kind.as_str(), verb);
        }
    }

    /// Creates the Secret, or replaces exactly the version that was read.
    async fn put(&self, mut secret: Secret, before: Option<&Secret>) -> Result<(), String> {
        let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
        let (api, parameters) = (self.secrets(&namespace), self.parameters());
        let written = if let Some(before) = before {
            self.wrote(Kind::Secret, "update");
            let version = &before.metadata.resource_version;
            secret.metadata.resource_version.clone_from(version);
            answer(TIMEOUT, api.replace(&name, &parameters, &secret)).await
        } else {
            self.wrote(Kind::Secret, "create");
            answer(TIMEOUT, api.create(&parameters, &secret)).await
        };
        written
            .map(drop)
            .map_err(|error| explained("write Secrets", &namespace, &error))
    }

    fn hook(&self) -> Result<DnsHook, String> {
        let program = self.replica.acme_dns_hook.clone();
        program.map(DnsHook).ok_or_else(|| {
            "spec.acme.challenge DNS01 needs a program that changes DNS records; start the \
             controller with --acme-dns-hook"
                .to_owned()
        })
    }

    fn dynamic(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        let version = kind.api_versions().first().copied().unwrap_or_default();
        let resource = api_resource(kind, version);
        Api::namespaced_with(self.replica.client.clone(), namespace, &resource)
    }

    async fn owners(&self, request: &CertificateRequest) -> Result<Vec<OwnerReference>, String> {
        let mut found = Vec::new();
        for ObjectKey { kind, name } in &request.requesters {
            let api = self.dynamic(*kind, &name.namespace);
            let object = answer(TIMEOUT, api.get_opt(&name.name)).await;
            let object = object.map_err(|error| error.to_string())?;
            found.extend(object.map(|object| owner(*kind, &object)));
        }
        if found.is_empty() {
            return Err("its Gateways and ListenerSets no longer exist".to_owned());
        }
        Ok(found)
    }

    /// Returns the problem of an address that responds otherwise, or else of an unreachable one if
    /// no address serves the challenge.
    async fn probe_all(
        &self,
        challenge: &Challenge,
        request: &CertificateRequest,
    ) -> Result<Result<(), ProbeError>, String> {
        let gateways = request.parents.iter().map(|parent| &parent.gateway);
        let gateways: BTreeSet<&NamespacedName> = gateways.collect();
        let mut is_served = false;
        let mut last = ProbeError {
            message: "the Gateway has no address yet".to_owned(),
            is_response: true,
        };
        for name in gateways {
            let api = self.dynamic(Kind::Gateway, &name.namespace);
            let gateway = answer(TIMEOUT, api.get_opt(&name.name)).await;
            let Some(gateway) = gateway.map_err(|error| error.to_string())? else {
                continue;
            };
            let parents = request.parents.iter();
            for parent in parents.filter(|parent| parent.gateway == *name) {
                last = unprobed(&gateway.data).unwrap_or(last);
                for address in addresses(&gateway.data) {
                    match probe(SocketAddr::new(address, parent.port), challenge).await {
                        Ok(()) => is_served = true,
                        Err(error) if error.is_response => return Ok(Err(error)),
                        Err(error) => last = error,
                    }
                }
            }
        }
        Ok(if is_served { Ok(()) } else { Err(last) })
    }
}

impl AcmeHost for ClusterHost {
    async fn read_record(&self, name: &str) -> Result<Option<String>, String> {
        let data = self.records().await?.and_then(|secret| secret.data);
        let text = data.and_then(|mut data| data.remove(name));
        let text = text.map(|text| String::from_utf8(text.0));
        text.transpose().map_err(|_| format!("{name} is damaged"))
    }

    async fn write_record(&self, name: &str, text: &str) -> Result<(), String> {
        let before = self.records().await?;
        let mut data = before
            .as_ref()
            .and_then(|it| it.data.clone())
            .unwrap_or_default();
        data.insert(name.to_owned(), ByteString(text.as_bytes().to_vec()));
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(self.records_name()),
                namespace: Some(self.replica.namespace.clone()),
                labels: Some(BTreeMap::from([(
                    ACME_KEY.to_owned(),
                    "account".to_owned(),
                )])),
                ..ObjectMeta::default()
            },
            data: Some(data),
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        };
        self.put(secret, before.as_ref()).await
    }

    async fn find(&self, name: &NamespacedName) -> Result<HeldCertificate, String> {
        let found = answer(TIMEOUT, self.secrets(&name.namespace).get_opt(&name.name)).await;
        let Some(found) = found.map_err(|error| error.to_string())? else {
            return Ok(HeldCertificate::Missing);
        };
        if !is_issued(&found, name, &self.replica.controller_name) {
            return Ok(HeldCertificate::Foreign);
        }
        let directory = found.annotations().get(DIRECTORY_ANNOTATION).cloned();
        let chain = found.data.as_ref().and_then(|data| data.get(CERTIFICATE));
        let facts = chain.and_then(|chain| IssuedFacts::read(&chain.0).ok());
        Ok(
            facts.map_or(HeldCertificate::Missing, |facts| HeldCertificate::Issued {
                facts,
                directory: directory.unwrap_or_default(),
            }),
        )
    }

    async fn can_save(
        &self,
        name: &NamespacedName,
        request: &CertificateRequest,
    ) -> Result<(), String> {
        let nothing = IssuedPair {
            chain: String::new(),
            key: String::new(),
        };
        let trial = Self {
            replica: self.replica.clone(),
            dry_run: true,
        };
        trial.save(name, request, &nothing).await
    }

    async fn save(
        &self,
        name: &NamespacedName,
        request: &CertificateRequest,
        pair: &IssuedPair,
    ) -> Result<(), String> {
        let found = answer(TIMEOUT, self.secrets(&name.namespace).get_opt(&name.name)).await;
        let before = found.map_err(|error| error.to_string())?;
        let controller = &self.replica.controller_name;
        if before
            .as_ref()
            .is_some_and(|found| !is_issued(found, name, controller))
        {
            return Err(format!(
                "another program created or edited Secret {name}; delete one of them"
            ));
        }
        let written = Written {
            name,
            pair,
            directory: &request.issuer.directory,
            controller,
        };
        let secret = written.secret(before.as_ref());
        self.put(secret, before.as_ref()).await
    }

    async fn clear(&self) -> Result<(), String> {
        for kind in [Kind::HttpRoute, Kind::RouteFilter] {
            self.clear_kind(kind).await;
        }
        Ok(())
    }

    async fn present(
        &self,
        challenge: &Challenge,
        request: &CertificateRequest,
    ) -> Result<(), String> {
        let owners = self.owners(request).await?;
        for object in challenge.objects(request) {
            let mut new: DynamicObject =
                serde_json::from_value(object.value).map_err(|error| error.to_string())?;
            new.metadata.owner_references = Some(owners.clone());
            let controller = self.replica.controller_name.clone();
            let annotation = (CONTROLLER_ANNOTATION.to_owned(), controller);
            new.metadata.annotations = Some(BTreeMap::from([annotation]));
            let api = self.dynamic(object.kind, &challenge.namespace);
            self.wrote(object.kind, "create");
            match answer(TIMEOUT, api.create(&self.parameters(), &new)).await {
                // An earlier leader may have created it for the same token.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => {
                    let what = format!("create {}", object.kind.plural());
                    return Err(explained(&what, &challenge.namespace, &error));
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    async fn served(
        &self,
        challenge: &Challenge,
        request: &CertificateRequest,
    ) -> Result<(), String> {
        let api = self.dynamic(Kind::HttpRoute, &challenge.namespace);
        let name = challenge.object_name().name;
        let start = Instant::now();
        let mut accepted: Option<Instant> = None;
        loop {
            let route = answer(TIMEOUT, api.get_opt(&name)).await;
            let route = route.map_err(|error| error.to_string())?;
            let controller = &self.replica.controller_name;
            let mut last = "the controller has not accepted the HTTPRoute".to_owned();
            if route.is_some_and(|route| is_accepted(&route.data, controller)) {
                let since = *accepted.get_or_insert_with(Instant::now);
                match self.probe_all(challenge, request).await? {
                    // A host that responds otherwise lags behind.
                    Err(error) if error.is_response || since.elapsed() < UNREACHABLE => {
                        last = error.message;
                    }
                    Ok(()) | Err(_) => return Ok(()),
                }
            }
            if start.elapsed() > SERVED_TIMEOUT {
                return Err(format!(
                    "the Gateway does not serve the challenge, so the CA was not asked to \
                     validate: {last}; check its HTTP listener, and the policies that apply to it"
                ));
            }
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
    }

    async fn withdraw(&self, challenge: &Challenge) -> Result<(), String> {
        let name = challenge.object_name();
        for kind in [Kind::HttpRoute, Kind::RouteFilter] {
            self.delete(kind, &name).await?;
        }
        Ok(())
    }

    async fn add_record(&self, hostname: &str, value: &str) -> Result<(), String> {
        self.hook()?.run("present", hostname, value).await
    }

    async fn remove_record(&self, hostname: &str, value: &str) -> Result<(), String> {
        self.hook()?.run("cleanup", hostname, value).await
    }
}
