//! The cluster, the controller, the agent and the stand-in for nodes.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::json;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::cluster::{Channel, Guard, TestCluster, User};
use sesame_tests::controller::{ControllerUnderTest, NAMESPACE, deploy};
use sesame_tests::envoy::workspace;
use sesame_tests::manifests::{class_with_parameters, gateway_class, yaml};
use sesame_tests::reports::allow_hosts;
use sesame_tests::wait::eventually;

use super::{Args, ChannelArg, ClientArg, leftovers, progress};

/// Every address in this pool is assigned to this network namespace.
const POOL: &str = "203.0.113.0/24";
/// Addresses that the suite's Gateways request. Only the first one is on this host.
const USABLE: &str = "203.0.113.200";
const UNUSABLE: &str = "198.51.100.1";
const CLASS: &str = "sesame";
/// A class whose HTTPS listeners also serve HTTP/3.
const HTTP3_CLASS: &str = "sesame-http3";
const NODE: &str = "/api/v1/nodes/node";

pub(crate) struct Stage {
    directory: PathBuf,
    kubeconfig: PathBuf,
    agent: AgentUnderTest,
    controller: ControllerUnderTest,
    nodes: Child,
    guard: Guard,
    cluster: TestCluster,
}

impl Stage {
    pub(crate) async fn start(args: &Args) -> anyhow::Result<Self> {
        let directory = args.directory.canonicalize().with_context(|| {
            format!("{}: `make conformance` builds it", args.directory.display())
        })?;
        add_addresses()?;
        let cluster = TestCluster::start().await;
        let channel = match args.channel {
            ChannelArg::Standard => Channel::Standard,
            ChannelArg::Experimental => Channel::Experimental,
        };
        cluster.install_release(&args.release, channel).await;
        deploy(&cluster).await;
        let rbac = workspace().join("controller/deploy/agent/rbac.yaml");
        let http3 = class_with_parameters(HTTP3_CLASS, "http3", &json!({"edge": {"http3": {}}}));
        let classes = yaml(&[&[gateway_class(CLASS)], http3.as_slice()].concat());
        for text in [std::fs::read_to_string(rbac)?, classes] {
            let applied = cluster.apply(&text).await;
            applied.map_err(|error| anyhow::anyhow!("{error}"))?;
        }
        allow_hosts(&cluster, &["node"]).await;
        let controller = ControllerUnderTest::start(&cluster, &["--lease-seconds", "15"]).await;
        controller.wait_ready().await;
        let agent = follow(&cluster).await;
        let kubeconfig = cluster.kubeconfig(&User::Admin).await;
        let guard = Guard::start(&directory);
        let nodes = guard.spawn(
            logged(&directory, "nodes")?
                .env("KUBECONFIG", &kubeconfig)
                .arg("--echo")
                .arg(directory.join("echo-basic"))
                .arg("--directory")
                .arg(agent.runtime().with_file_name("volumes")),
        );
        let stage = Self {
            directory,
            kubeconfig,
            agent,
            controller,
            nodes,
            guard,
            cluster,
        };
        let admin = stage.cluster.admin();
        eventually(
            "the Node exists",
            sesame_tests::agent::TEST_TIMEOUT,
            async || {
                let node = admin.get(NODE).await.map_err(|error| error.to_string())?;
                let ready = node["status"]["addresses"].is_array();
                ready.then_some(()).ok_or_else(|| node.to_string())
            },
        )
        .await;
        Ok(stage)
    }

    /// Runs the suite. Only a run over TCP writes a report.
    pub(crate) async fn suite(
        &mut self,
        client: ClientArg,
        arguments: &[String],
    ) -> anyhow::Result<bool> {
        let report = self.directory.join("report.yaml");
        let (log, own) = match client {
            ClientArg::Tcp => (
                "suite",
                [
                    format!("--gateway-class={CLASS}"),
                    format!("--report-output={}", report.display()),
                ],
            ),
            ClientArg::Http3 => (
                "suite-http3",
                [
                    format!("--gateway-class={HTTP3_CLASS}"),
                    "-http3".to_owned(),
                ],
            ),
        };
        let mut command = Command::new(self.directory.join("suite"));
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .current_dir(&self.directory)
            .args(["-test.v", "-test.timeout=0", "-test.run=^TestConformance$"])
            .args(own)
            .arg(format!("--usable-address={USABLE}"))
            .arg(format!("--unusable-address={UNUSABLE}"))
            .arg(format!("--version=v{}", env!("CARGO_PKG_VERSION")))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(
                self.directory.join(format!("{log}-errors.log")),
            )?);
        let log = File::create(self.directory.join(format!("{log}.log")))?;
        #[allow(
            clippy::zombie_processes,
            reason = "the guard kills the child if nothing waits for it"
        )]
        let child = self.guard.spawn(&mut command);
        tokio::task::spawn_blocking(move || progress::follow(child, log)).await?
    }

    pub(crate) async fn tidy(&self) -> anyhow::Result<bool> {
        let left = leftovers::wait_gone(self.cluster.admin(), &self.agent).await?;
        for what in &left {
            println!("left over: {what}");
        }
        Ok(left.is_empty())
    }

    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        self.keep_logs()?;
        ensure!(
            self.agent.stop().success(),
            "the agent did not exit successfully"
        );
        Ok(())
    }

    fn keep_logs(&self) -> anyhow::Result<()> {
        for (name, text) in [
            ("controller.log", self.controller.log()),
            ("agent.log", self.agent.log()),
        ] {
            std::fs::write(self.directory.join(name), text)?;
        }
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.keep_logs();
        // The guard kills the backends, which are in the same process group.
        let _ = self.nodes.kill();
        let _ = self.nodes.wait();
    }
}

async fn follow(cluster: &TestCluster) -> AgentUnderTest {
    let user = User::service_account(NAMESPACE, "sesame-agent");
    let config = cluster.kubeconfig(&user).await;
    let mut agent = Setup::with_ports(&[])
        .without_manifests()
        .address_pool(POOL)
        .prepare();
    agent.add_flags(&["--kube", "--kubeconfig", &config.to_string_lossy()]);
    agent.add_flags(&["--host", "node", "--concurrency", "1"]);
    // Tests end by deleting their routes, and several may end at once.
    agent.add_flags(&["--max-removal-share", "100"]);
    agent.restart();
    agent
}

fn add_addresses() -> anyhow::Result<()> {
    let mut batch = String::new();
    for last in 1..=254 {
        writeln!(batch, "address add 203.0.113.{last}/32 dev lo")?;
    }
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .context("ip (Debian: iproute2)")?;
    ip.stdin
        .take()
        .context("a pipe")?
        .write_all(batch.as_bytes())?;
    ensure!(ip.wait()?.success(), "addresses for Gateways");
    Ok(())
}

fn logged(directory: &Path, name: &str) -> anyhow::Result<Command> {
    let log = File::create(directory.join(name).with_extension("log"))?;
    let mut command = Command::new(directory.join(name));
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(command)
}
