//! A Gateway with many HTTPS listeners, each with its own certificate.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rustls_pki_types::CertificateDer;
use serde_json::Value;
use sesame_envoy::Admin;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::client::Request;
use sesame_tests::handshakes::Handshake;
use sesame_tests::manifests::{edge, http_route, https_listener, rule_to, served, yaml};
use sesame_tests::wait::{eventually, holds};

/// Counters that increase when a listener changes or a connection is drained.
const LISTENER_COUNTERS: &str = r"^listener_manager\.(listener_(added|modified|removed|in_place_updated|create_success)|lds\.update_attempt)$|downstream_cx_drain_close$";

/// Listener `n` has the hostname `h<n>.test` and the Secret `pair-<n>`.
pub(crate) struct Site {
    pub(crate) authority: Authority,
    pub(crate) names: usize,
}

impl Site {
    pub(crate) fn with_names(names: usize) -> Self {
        Self {
            authority: Authority::new("servers"),
            names,
        }
    }

    pub(crate) fn host(number: usize) -> String {
        format!("h{number}.test")
    }

    /// One route serves all listeners. `change` can modify each listener.
    pub(crate) fn objects(
        &self,
        backend: std::net::SocketAddr,
        change: impl Fn(Value) -> Value,
    ) -> String {
        let listeners: Vec<Value> = (0..self.names)
            .map(|number| {
                let (name, secret) = (format!("l{number}"), format!("pair-{number}"));
                change(https_listener(&name, 443, &Self::host(number), &secret))
            })
            .collect();
        let mut objects = edge(&listeners);
        objects.extend(served("app", &[backend]));
        objects.push(http_route("app", &[], &[rule_to("app", &[])]));
        yaml(&objects)
    }

    pub(crate) fn issue(&self, number: usize) -> Leaf {
        self.authority.issue(&[&Self::host(number)])
    }

    pub(crate) fn write(agent: &AgentUnderTest, number: usize, leaf: &Leaf) {
        let name = format!("pair-{number}");
        agent.write(&format!("{name}.yaml"), &yaml(&[leaf.secret(&name)]));
    }

    pub(crate) async fn start(
        &self,
        setup: Setup,
        backend: std::net::SocketAddr,
        change: impl Fn(Value) -> Value,
    ) -> AgentUnderTest {
        let mut agent = setup.prepare();
        agent.write("site.yaml", &self.objects(backend, change));
        for number in 0..self.names {
            Self::write(&agent, number, &self.issue(number));
        }
        agent.restart();
        agent.wait_healthy().await;
        agent
    }

    pub(crate) fn get(&self, agent: &AgentUnderTest, number: usize) -> Request {
        let host = Self::host(number);
        agent
            .get(443, &host, "/")
            .tls(&host, &self.authority.trust())
    }

    pub(crate) async fn shown(
        &self,
        agent: &AgentUnderTest,
        number: usize,
    ) -> Result<CertificateDer<'static>, String> {
        let host = Self::host(number);
        let client = Handshake::with(agent.address(443), &host, &self.authority.trust());
        let agreed = client.shake().await;
        agreed
            .map(|agreed| agreed.certificate)
            .map_err(|error| format!("{error:#}"))
    }

    pub(crate) async fn wait_shown(&self, agent: &AgentUnderTest, number: usize, leaf: &Leaf) {
        let what = format!("{} presents its new certificate", Self::host(number));
        eventually(&what, sesame_tests::agent::TEST_TIMEOUT, async || {
            let shown = self.shown(agent, number).await?;
            holds(shown == leaf.der, || "an older certificate".to_owned())
        })
        .await;
    }
}

pub(crate) async fn admin(agent: &AgentUnderTest) -> Admin {
    let status = agent.wait_healthy().await;
    let path = status["gateways"][0]["envoy"]["admin"].as_str();
    Admin::new(PathBuf::from(path.expect("an admin socket")))
}

/// Returns the statistics that a rotation must not change.
pub(crate) async fn unmoved(admin: &Admin) -> BTreeMap<String, u64> {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for (name, value) in admin
        .counters(LISTENER_COUNTERS)
        .await
        .expect("Envoy answers")
    {
        all.insert(name, value);
    }
    let draining = r"^listener_manager\.total_(listeners|filter_chains)_draining$";
    all.extend(admin.gauges(draining).await.expect("Envoy answers"));
    all
}
