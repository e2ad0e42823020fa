//! Agents and controllers of different versions, under load. `OLDER_VERSIONS` lists directories
//! with the older programs, separated by colons; `make test-skew REVISIONS="…"` builds them. If
//! unset, the older version is a copy of the current version.

use std::path::{Path, PathBuf};

use serde_json::json;
use sesame_tests::agent::{AgentUnderTest, Setup, beside_test, install_program};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::client::Request;
use sesame_tests::cluster::{Channel, TestCluster, User};
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, condition, deployed, give_rights};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, https_listener, plain_route, served};
use sesame_tests::network;
use sesame_tests::reports::allow_hosts;

const TEST: &str = "two_versions_interoperate_through_upgrade_and_downgrade";
const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
const HOST: &str = "skew.test";

struct Version {
    agent: PathBuf,
    controller: PathBuf,
}

impl Version {
    fn today() -> Self {
        Self {
            agent: beside_test("sesame-agent"),
            controller: beside_test("sesame-controller"),
        }
    }

    fn older() -> Vec<Self> {
        let Some(directories) = std::env::var_os("OLDER_VERSIONS") else {
            return vec![Self::today()];
        };
        let of = |directory: PathBuf| Self {
            agent: directory.join("sesame-agent"),
            controller: directory.join("sesame-controller"),
        };
        std::env::split_paths(&directories).map(of).collect()
    }
}

struct Served {
    cluster: TestCluster,
    controller: ControllerUnderTest,
    agent: AgentUnderTest,
    /// Upgrades replace this file.
    program: PathBuf,
    authority: Authority,
    backends: [Backend; 2],
    load: Load,
    changes: usize,
}

impl Served {
    async fn start(directory: &Path, older: &Version) -> Self {
        let cluster = deployed(Channel::Standard).await;
        give_rights(&cluster, "agent/rbac.yaml").await;
        allow_hosts(&cluster, &["host-1"]).await;
        let controller = ControllerUnderTest::start(&cluster, &[]).await;
        controller.wait_ready().await;

        let backends = [backend("a").await, backend("b").await];
        let authority = Authority::new("skew");
        let mut objects = edge(&[
            http_listener("http", 80, ""),
            https_listener("https", 443, "", "key"),
        ]);
        objects.push(authority.issue(&[HOST]).secret("key"));
        for backend in &backends {
            objects.extend(served(backend.name(), &[backend.address()]));
        }
        objects.push(plain_route("app", HOST, "a"));
        cluster.apply_all(&objects).await;

        let program = directory.join("sesame-agent");
        install_program(&older.agent, &program);
        let user = User::service_account(NAMESPACE, "sesame-agent");
        let config = cluster.kubeconfig(&user).await;
        let setup = Setup::with_ports(&[80, 443]).without_manifests();
        let mut agent = setup.agent(&program).prepare();
        agent.add_flags(&["--kube", "--kubeconfig", &config.to_string_lossy()]);
        agent.add_flags(&["--host", "host-1", "--drain-seconds=5"]);
        agent.restart();
        let plain = agent.get(80, HOST, "/");
        let secure = agent.get(443, HOST, "/").tls(HOST, &authority.trust());
        agent.wait_backend(&plain, "a").await;
        agent.wait_backend(&secure, "a").await;
        Self {
            cluster,
            controller,
            load: Load::start(&Plan::new(vec![plain, secure])),
            agent,
            program,
            authority,
            backends,
            changes: 0,
        }
    }

    fn secure(&self, host: &str) -> Request {
        let request = self.agent.get(443, host, "/");
        request.tls(host, &self.authority.trust())
    }

    async fn changes_arrive(&mut self, scenario: &str) {
        eprintln!("checking that changes take effect: {scenario}");
        self.changes += 1;
        let [a, b] = &self.backends;
        let (to, other) = if self.changes.is_multiple_of(2) {
            (a, b)
        } else {
            (b, a)
        };
        let plain = self.agent.get(80, HOST, "/");

        let route = plain_route("app", HOST, to.name());
        self.cluster.apply_all(&[route]).await;
        self.agent.wait_backend(&plain, to.name()).await;

        for endpoint in [other, to] {
            let slices = served(to.name(), &[endpoint.address()]).split_off(1);
            self.cluster.apply_all(&slices).await;
            self.agent.wait_backend(&plain, endpoint.name()).await;
        }

        // Clients request the new hostname immediately.
        let new = format!("n{}.{HOST}", self.changes);
        let leaf = self.authority.issue(&[HOST, &new]).secret("key");
        let mut route = plain_route("app", HOST, to.name());
        route["spec"]["hostnames"] = json!([HOST, new]);
        self.cluster.apply_all(&[leaf, route]).await;
        let request = self.secure(&new);
        self.agent.wait_backend(&request, to.name()).await;

        self.cluster
            .until("the Gateway is programmed", GATEWAY, |gateway| {
                let programmed = condition(&gateway["status"]["conditions"], "Programmed");
                programmed["status"] == "True"
                    && programmed["observedGeneration"] == gateway["metadata"]["generation"]
            })
            .await;
        self.load.pass(100).await;
    }

    async fn replace_agent(&mut self, program: &Path) {
        install_program(program, &self.program);
        self.agent.restart();
        self.agent.wait_live().await;
    }

    async fn replace_controller(&mut self, program: &Path) {
        self.controller.replace(program);
        self.controller.wait_ready().await;
    }
}

async fn backend(name: &str) -> Backend {
    let at = (network::BACKENDS, 0).into();
    Backend::start_at(name, at).await.expect("an address")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_versions_interoperate_through_upgrade_and_downgrade() {
    if !network::inside_own(TEST) {
        return;
    }
    let today = Version::today();
    for older in Version::older() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut all = Served::start(directory.path(), &older).await;
        all.changes_arrive("older agent, current controller").await;
        all.replace_agent(&today.agent).await;
        all.changes_arrive("upgraded agent").await;
        all.replace_controller(&older.controller).await;
        all.changes_arrive("current agent, older controller").await;
        all.replace_agent(&older.agent).await;
        all.changes_arrive("downgraded agent").await;
        all.replace_controller(&today.controller).await;
        all.changes_arrive("upgraded controller").await;
        let report = all.load.stop().await;
        report.clean("version skew between agent and controller");
    }
}
