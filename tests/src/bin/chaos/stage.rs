//! The cluster, the controllers, the hosts and their backends.

use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use serde_json::Value;
use sesame_tests::agent::TEST_TIMEOUT;
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::clock::Clock;
use sesame_tests::cluster::{Channel, Client, TestCluster, User};
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, deployed, give_rights};
use sesame_tests::network;
use sesame_tests::reports::allow_hosts;
use sesame_tests::streams::echo_at;
use sesame_tests::wait::eventually;
use tempfile::TempDir;

use super::host::Host;
use super::link::Link;
use super::objects::{self, Backends};
use super::probe::{Failed, Probe};
use super::programs::Programs;
use super::schedule::{CONTROLLERS, HOSTS};
use super::volume::Images;

const BACKENDS: [&str; 3] = ["one", "two", "three"];

/// A controller of the run.
pub(crate) struct Replica {
    pub(crate) controller: ControllerUnderTest,
    pub(crate) clock: Clock,
    /// True while a fault keeps the controller from running.
    pub(crate) is_down: bool,
    pub(crate) is_older: bool,
}

/// Everything that runs.
pub(crate) struct Stage {
    pub(crate) hosts: Vec<Host>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) cluster: TestCluster,
    pub(crate) client: Arc<Client>,
    pub(crate) programs: Programs,
    pub(crate) authority: Authority,
    /// The certificate's Secret, as it should be.
    pub(crate) secret: Value,
    pub(crate) backends: Backends,
    /// True while a fault keeps the API server or etcd from running.
    pub(crate) are_servers_down: bool,
    _servers: Vec<Backend>,
    _images: Images,
    _directory: TempDir,
}

impl Stage {
    /// Starts everything, and waits until all hosts serve.
    pub(crate) async fn start(programs: Programs) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("sesame-chaos-").tempdir()?;
        let images = Images::mount(directory.path().join("images"))?;
        let cluster = deployed(Channel::Standard).await;
        give_rights(&cluster, "agent/rbac.yaml").await;
        let names: Vec<String> = (0..HOSTS).map(|number| format!("host-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        allow_hosts(&cluster, &names).await;

        let anywhere = (network::BACKENDS, 0).into();
        let mut servers = Vec::new();
        for name in BACKENDS {
            let server = Backend::start_at(name, anywhere).await;
            servers.push(server.context("a backend")?);
        }
        let backends = Backends {
            http: servers.iter().map(Backend::address).collect(),
            tcp: vec![echo_at(anywhere, None).await, echo_at(anywhere, None).await],
        };
        let authority = Authority::new("chaos");
        let (objects, secret) = objects::first(&authority, &backends);
        cluster.apply_all(&objects).await;
        // An object that the API server refuses would test nothing.
        for object in objects::later() {
            let accepted = cluster.admin().try_value(&object).await;
            accepted.map_err(|failure| anyhow!("{failure}: {object}"))?;
        }

        let mut replicas = Vec::new();
        for _ in 0..CONTROLLERS {
            let clock = Clock::new();
            let variables = clock.variables();
            let controller = ControllerUnderTest::start_with(&cluster, &[], &variables).await;
            replicas.push(Replica {
                controller,
                clock,
                is_down: false,
                is_older: false,
            });
        }
        let kubeconfig = kubeconfig(&cluster).await?;
        let server = cluster.url();
        let address = server.trim_start_matches("https://").parse()?;
        let mut hosts: Vec<Host> = Vec::new();
        for number in 0..HOSTS {
            let link = Link::start(address).await?;
            let own = kubeconfig.replace(&server, &format!("https://{}", link.address()));
            let beside = hosts.first().map(|first| &first.agent);
            let link = (link, own.as_str());
            let places = (directory.path(), &images);
            let host = Host::start(number, beside, link, places, &programs)?;
            hosts.push(host);
        }
        let client = Arc::new(cluster.client(&User::Admin).await);
        let stage = Self {
            hosts,
            replicas,
            cluster,
            client,
            programs,
            authority,
            secret,
            backends,
            are_servers_down: false,
            _servers: servers,
            _images: images,
            _directory: directory,
        };
        stage.wait_served().await;
        Ok(stage)
    }

    /// Returns the requests of the load, for each host.
    pub(crate) fn probes(&self) -> Vec<Vec<Probe>> {
        let trust = self.authority.trust();
        let hosts = self.hosts.iter();
        hosts.map(|host| host.probes(&trust)).collect()
    }

    async fn wait_served(&self) {
        for (host, probes) in self.hosts.iter().zip(self.probes()) {
            for probe in probes {
                let what = format!("{} serves {probe}", host.name);
                eventually(&what, TEST_TIMEOUT, async || {
                    let sent = probe.send(&mut None).await;
                    sent.map_err(|Failed { cause, .. }| {
                        format!("{cause}\n{}", host.agent.log_tail())
                    })
                })
                .await;
            }
        }
    }
}

async fn kubeconfig(cluster: &TestCluster) -> anyhow::Result<String> {
    let user = User::service_account(NAMESPACE, "sesame-agent");
    let path = cluster.kubeconfig(&user).await;
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}
