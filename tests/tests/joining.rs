//! A host outside the cluster joins it with one token, has rights of its own only, and leaves again.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use sesame_gateway_api::api::NamespacedName;
use sesame_published::host_access::{fleet_role, host_account, invitation_account};
use sesame_published::join_token::JoinToken;
use sesame_published::names::{agent_name, key_secret_name};
use sesame_tests::agent::{AgentUnderTest, SOON, Setup, agent_binary, words};
use sesame_tests::backend::Backend;
use sesame_tests::clock::Clock;
use sesame_tests::cluster::{Channel, Client, Failure, TestCluster, User};
use sesame_tests::controller::{
    ControllerUnderTest, NAMESPACE, condition, controller_binary, deploy,
};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    edge, gateway, http_listener, http_route, path, rule_to, served, yaml,
};
use sesame_tests::network;
use sesame_tests::reports::{REPORTS, report, report_path, say};
use sesame_tests::wait::eventually;
use tempfile::TempDir;

const CORE: &str = "/api/v1/namespaces/sesame-system";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/sesame-system";
const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";

fn our_edge() -> NamespacedName {
    NamespacedName::new("default", "edge")
}

/// Runs a program to its end with this on its standard input.
fn run(program: &Path, arguments: &[&str], input: &str, variables: &[(&str, PathBuf)]) -> Output {
    let mut child = Command::new(program)
        .args(arguments)
        .envs(variables.iter().cloned())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("piped");
    // It may not read it.
    let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("the binary ends")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// A cluster with a Gateway, an administrator's kubeconfig, and `sesame-controller hosts`.
struct Site {
    cluster: TestCluster,
    admin_config: PathBuf,
}

impl Site {
    async fn start() -> Self {
        let cluster = TestCluster::start().await;
        cluster.install_crds(Channel::Standard).await;
        deploy(&cluster).await;
        let admin_config = cluster.kubeconfig(&User::Admin).await;
        Self {
            cluster,
            admin_config,
        }
    }

    fn admin(&self) -> &Client {
        self.cluster.admin()
    }

    fn hosts(&self, arguments: &[&str]) -> Output {
        let config = self.admin_config.to_string_lossy();
        let at = ["hosts", "--kubeconfig", &config, "--namespace", NAMESPACE];
        run(
            &controller_binary(),
            &[&at[..], arguments].concat(),
            "",
            &[],
        )
    }

    /// The text of a join token.
    fn token(&self, arguments: &[&str]) -> String {
        let output = self.hosts(&[&["token", "--output", "json"], arguments].concat());
        assert!(output.status.success(), "{}", words(&output));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        answer["token"].as_str().expect("a token").to_owned()
    }

    fn list(&self) -> Vec<Value> {
        let output = self.hosts(&["list", "--output", "json"]);
        assert!(output.status.success(), "{}", words(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn row(&self, host: &str) -> Value {
        let mut all = self.list().into_iter();
        all.find(|row| row["host"] == host).unwrap_or_default()
    }

    async fn apply(&self, objects: &[Value]) {
        let applied = self.cluster.apply(&yaml(objects)).await;
        applied.unwrap_or_else(|error| panic!("{error}"));
    }

    async fn is_gone(&self, path: &str) -> bool {
        matches!(self.admin().get(path).await, Err(error) if error.is(404))
    }
}

/// The directories of a host that no agent serves.
struct Host {
    directory: TempDir,
}

impl Host {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self { directory }
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("agent.yaml")
    }

    fn join(&self, token: &str) -> Output {
        join(&self.state(), &self.config(), token, &[])
    }

    fn joined(&self, token: &str) -> String {
        let output = self.join(token);
        assert!(output.status.success(), "{}", words(&output));
        credential(&self.state())
    }

    fn leave(&self) -> Output {
        leave(
            &self.state(),
            &self.config(),
            &self.directory.path().join("run"),
        )
    }
}

fn join(state: &Path, config: &Path, token: &str, variables: &[(&str, PathBuf)]) -> Output {
    let (state, config) = (state.to_string_lossy(), config.to_string_lossy());
    let arguments = [
        "join",
        "--token-file",
        "-",
        "--state-dir",
        &state,
        "--config",
        &config,
        "--no-service",
        "--zone",
        "rack-7",
    ];
    run(&agent_binary(), &arguments, token, variables)
}

fn leave(state: &Path, config: &Path, runtime: &Path) -> Output {
    let (state, config) = (state.to_string_lossy(), config.to_string_lossy());
    let runtime = runtime.to_string_lossy();
    let arguments = [
        "leave",
        "--state-dir",
        &state,
        "--config",
        &config,
        "--no-service",
        "--runtime-dir",
        &runtime,
    ];
    run(&agent_binary(), &arguments, "", &[])
}

fn credential(state: &Path) -> String {
    std::fs::read_to_string(state.join("cluster/token")).expect("a credential")
}

/// The settings that `join` wrote, as options of `run`.
fn options(config: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(config).expect("settings");
    let settings: Value = serde_saphyr::from_str(&text).expect("YAML");
    let mut options = Vec::new();
    for (name, value) in settings.as_object().expect("names and values") {
        let values = value.as_array().cloned().unwrap_or(vec![value.clone()]);
        for value in values.iter().filter(|_| name != "state-dir") {
            options.push(format!("--{name}"));
            options.extend(value.as_str().map(str::to_owned));
        }
    }
    options
}

fn refused(output: &Output, word: &str) {
    assert!(!output.status.success(), "{}", words(output));
    assert!(text(&output.stderr).contains(word), "{}", words(output));
}

fn forbidden<T: std::fmt::Debug>(result: Result<T, Failure>, word: &str) {
    let failure = result.expect_err(word);
    assert!(failure.is(403), "{failure}");
    assert!(failure.to_string().contains(word), "{failure}");
}

async fn wait_addresses(
    site: &Site,
    addresses: &[&str],
    controller: &ControllerUnderTest,
) -> Value {
    eventually(
        &format!("the Gateway is at {addresses:?}"),
        3 * SOON,
        async || {
            let object = site
                .admin()
                .get(GATEWAY)
                .await
                .map_err(|error| error.to_string())?;
            let all = object["status"]["addresses"]
                .as_array()
                .into_iter()
                .flatten();
            let found: Vec<&str> = all.filter_map(|one| one["value"].as_str()).collect();
            if found == addresses {
                Ok(object)
            } else {
                Err(format!("{object:#}\n{}", controller.log_tail()))
            }
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_joins_serves_renews_is_lost_and_found_and_serves_on_when_it_is_revoked() {
    if !network::inside_own(
        "a_host_joins_serves_renews_is_lost_and_found_and_serves_on_when_it_is_revoked",
    ) {
        return;
    }
    let site = Site::start().await;
    let flags = ["--host-lost-seconds", "90"];
    let controller = ControllerUnderTest::start(&site.cluster, &flags).await;
    controller.wait_ready().await;
    let at = (network::BACKENDS, 0).into();
    let backend = Backend::start_at("a", at).await.expect("an address");
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("a", &[backend.address()]));
    let rules = [rule_to("a", &[path("PathPrefix", "/")])];
    objects.push(http_route("app", &["join.test"], &rules));
    site.apply(&objects).await;

    let clock = Clock::new();
    let wrapper = clock.command();
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let setup = Setup::with_ports(&[80])
        .without_manifests()
        .wrapper(&wrapper);
    let mut agent = setup.prepare();
    let config = agent.runtime().join("agent.yaml");
    let begun = Instant::now();
    let token = site.token(&[
        "--gateway",
        "default/edge",
        "--host",
        "host-1",
        "--lifetime",
        "10m",
    ]);
    assert_eq!(site.row("host-1")["access"], "invited");
    let joined = join(&agent.state(), &config, &token, &[]);
    assert!(joined.status.success(), "{}", words(&joined));
    let first = credential(&agent.state());
    assert!(!words(&joined).contains(&first), "a credential is printed");
    let state = agent.state();
    let mode = |name: &str| {
        let path = state.join("cluster").join(name);
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("token"), mode("kubeconfig")), (0o600, 0o600));
    let flags = options(&config);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    agent.add_flags(&flags);
    agent.restart();
    let request = agent.get(80, "join.test", "/");
    agent
        .wait_served(&request, |reply| reply.status == 200)
        .await;
    println!("join token to first answer: {:.1?}", begun.elapsed());
    let load = Load::start(&Plan::new(vec![request]));

    inventory(&site).await;
    let other = Host::new();
    refused(&other.join(&token), "join token");
    assert!(
        !other.state().join("cluster").exists(),
        "a refused host stores nothing"
    );

    // Half of its life is over by the clock of the host.
    clock.set(310);
    let second = eventually("the credential is renewed", SOON, async || {
        let now = credential(&agent.state());
        if now == first {
            Err(agent.log_tail())
        } else {
            Ok(now)
        }
    })
    .await;
    assert_eq!((mode("token"), mode("kubeconfig")), (0o600, 0o600));
    let renewed = site.cluster.bearer(&second);
    renewed
        .get(&format!("{CORE}/configmaps"))
        .await
        .expect("the next credential");
    assert!(!agent.log().contains(&second), "a credential is logged");

    lost_and_found(&site, &mut agent, &controller).await;
    load.pass(50).await;
    revoked(&site, &mut agent).await;
    load.pass(50).await;
    load.stop().await.assert_clean();
    assert!(agent.end().success(), "{}", agent.log_tail());
    let left = leave(&agent.state(), &config, &agent.runtime());
    assert!(left.status.success(), "{}", words(&left));
    assert!(!agent.state().join("cluster").exists());
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "");
}

/// The host tells what it is.
async fn inventory(site: &Site) {
    let row = eventually("the host is in the inventory", SOON, async || {
        let row = site.row("host-1");
        if row["state"] == "Serving" {
            Ok(row)
        } else {
            Err(row.to_string())
        }
    })
    .await;
    assert_eq!(row["access"], "joined", "{row:#}");
    assert_eq!(row["gateways"], json!(["default/edge"]), "{row:#}");
    assert_eq!(row["addresses"], json!(["127.0.0.1"]), "{row:#}");
    assert_eq!(
        (&row["zone"], &row["envoyVersion"]),
        (&json!("rack-7"), &json!("1.40.0")),
        "{row:#}"
    );
    assert!(
        row["cores"].as_u64() > Some(0) && row["memoryMiB"].as_u64() > Some(0),
        "{row:#}"
    );
    let table = site.hosts(&["list"]);
    assert!(text(&table.stdout).contains("rack-7"), "{}", words(&table));
}

/// An agent that dies takes its address out of the status, and its Envoy serves on.
async fn lost_and_found(site: &Site, agent: &mut AgentUnderTest, controller: &ControllerUnderTest) {
    wait_addresses(site, &["127.0.0.1"], controller).await;
    agent.kill9();
    let object = wait_addresses(site, &[], controller).await;
    let programmed = condition(&object["status"]["conditions"], "Programmed");
    let message = programmed["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("nothing was heard for 90 seconds of host-1"),
        "{programmed:#}"
    );
    assert!(controller.metric("hosts_lost", "").await > 0.5);
    assert!(
        controller.log().contains("a host is lost"),
        "{}",
        controller.log_tail()
    );
    agent.restart();
    wait_addresses(site, &["127.0.0.1"], controller).await;
    eventually("no host is lost", SOON, async || {
        let lost = controller.metric("hosts_lost", "").await;
        if lost < 0.5 {
            Ok(())
        } else {
            Err(controller.log_tail())
        }
    })
    .await;
}

/// Its credential is of no use, and nobody who is served notices.
async fn revoked(site: &Site, agent: &mut AgentUnderTest) {
    let output = site.hosts(&["revoke", "host-1"]);
    assert!(output.status.success(), "{}", words(&output));
    refused(&site.hosts(&["revoke", "host-1"]), "no host host-1");
    let stolen = site.cluster.bearer(&credential(&agent.state()));
    eventually("the access has ended", SOON, async || {
        match stolen.get(&format!("{CORE}/configmaps")).await {
            Err(error) if error.is(401) || error.is(403) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    // Its watch ends with the next restart, if not by itself.
    agent.kill9();
    agent.restart();
    agent
        .wait_status(
            "what was accepted is served without the cluster",
            |status| {
                status["source"]["available"] == false
                    && status["gateways"][0]["gateway"] == "default/edge"
            },
        )
        .await;
    assert!(site.is_gone(&report_path(&our_edge(), "host-1")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_good_for_one_host_and_a_host_for_itself() {
    let site = Site::start().await;
    let controller = ControllerUnderTest::start(&site.cluster, &[]).await;
    controller.wait_ready().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bank"}});
    let mut vault = gateway("vault", &[http_listener("http", 80, "")]);
    vault["metadata"]["namespace"] = json!("bank");
    vault["spec"]["gatewayClassName"] = json!("edge");
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend([namespace, vault]);
    site.apply(&objects).await;

    stolen(&site).await;
    let (a, b) = (Host::new(), Host::new());
    let first = site.token(&["--gateway", "default/edge", "--host", "a"]);
    let as_a = site.cluster.bearer(&a.joined(&first));
    // Another joins with a copy.
    refused(&b.join(&first), "join token");
    let as_b =
        site.cluster
            .bearer(&b.joined(&site.token(&["--gateway", "bank/vault", "--host", "b"])));
    rights(&site, &as_a, &as_b).await;
    refused(
        &a.join(&site.token(&["--fleet", "default"])),
        "has joined already, as a",
    );
    refused(
        &site.hosts(&["token", "--gateway", "default/edge", "--host", "a"]),
        "has joined already",
    );

    // One that was withdrawn, one that has expired, and one that is none.
    let host = Host::new();
    let withdrawn = site.token(&["--gateway", "default/edge", "--host", "c"]);
    assert!(site.hosts(&["revoke", "c"]).status.success());
    eventually("the invitation has ended", SOON, async || {
        let output = host.join(&withdrawn);
        if text(&output.stderr).contains("does not know this join token") {
            Ok(())
        } else {
            Err(words(&output))
        }
    })
    .await;
    let late = site.token(&["--gateway", "default/edge", "--host", "c", "--ttl", "10m"]);
    let clock = Clock::new();
    clock.set(601);
    refused(
        &join(&host.state(), &host.config(), &late, &clock.variables()),
        "this join token expired at",
    );
    refused(&host.join("something"), "this is no join token");
    refused(&host.join(&late[..late.len() - 9]), "damaged");
    assert!(!host.state().join("cluster").exists());

    leaves(&site, &b, &as_b).await;
    fleet(&site).await;
}

/// Whoever has a copy of a token gets nothing that the first to join does not give away.
async fn stolen(site: &Site) {
    let token = site.token(&["--gateway", "default/edge", "--host", "s"]);
    let token = JoinToken::parse(&token).unwrap();
    let thief = site.cluster.bearer(&token.bearer);
    let account = host_account("s");
    let secret = format!("{CORE}/secrets/{account}");
    let tokens = format!("{CORE}/serviceaccounts/{account}/token");
    let asking = |uid: Option<&str>| {
        let mut bound = json!({"apiVersion": "v1", "kind": "Secret", "name": account});
        if let Some(uid) = uid {
            bound["uid"] = json!(uid);
        }
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"boundObjectRef": bound, "expirationSeconds": 3600}})
    };
    let loose =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    eventually("the policy is in force", SOON, async || {
        match thief.create(&tokens, &loose).await {
            Err(error) if error.to_string().contains("has to be bound") => Ok(()),
            other => Err(format!("{:?}", other.map(|_| "a token"))),
        }
    })
    .await;
    // Without a claim nothing tells the UID.
    forbidden(thief.get(&secret).await, "secrets");
    eventually("the claim alone is let through", SOON, async || match thief
        .merge(&secret, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await
    {
        Err(error) if error.is(422) => Ok(()),
        other => Err(format!("{:?}", other.map(|_| "the Secret"))),
    })
    .await;
    forbidden(
        thief.create(&tokens, &asking(None)).await,
        "has to be bound",
    );
    let claim = json!({"metadata": {"annotations": {"projectsesame.io/claimed": "now"}}});
    let claimed = thief.merge(&secret, &claim).await.expect("the first claim");
    let again = thief
        .merge(&secret, &claim)
        .await
        .expect_err("the second claim");
    assert!(
        again.is(422) && again.to_string().contains("has joined"),
        "{again}"
    );
    let guessed = "00000000-0000-4000-8000-000000000000";
    assert!(thief.create(&tokens, &asking(Some(guessed))).await.is_err());
    let uid = claimed["metadata"]["uid"].as_str();
    thief
        .create(&tokens, &asking(uid))
        .await
        .expect("the claimer's token");
    // The host that comes second learns of it, and its operator ends it.
    let host = Host::new();
    refused(&host.join(&token.encode()), "hosts revoke s");
    assert!(site.hosts(&["revoke", "s"]).status.success());
}

/// A host reads its own Gateway's keys and writes its own reports.
async fn rights(site: &Site, as_a: &Client, as_b: &Client) {
    let (edge, vault) = (our_edge(), NamespacedName::new("bank", "vault"));
    let serving = json!({"state": "Serving", "addresses": ["192.0.2.1"]});
    for (client, gateway, host) in [(as_a, &edge, "a"), (as_b, &vault, "b")] {
        eventually("a host reports for itself", SOON, async || {
            let said = say(client, gateway, host, &serving).await;
            said.map_err(|error| error.to_string())
        })
        .await;
    }
    let of_b = report_path(&vault, "b");
    let down = json!({"status": {"state": "Down"}});
    forbidden(
        as_a.merge(&format!("{of_b}/status"), &down).await,
        "does not speak for host b",
    );
    forbidden(as_a.delete(&of_b).await, "does not speak for host b");
    let forged = report(&agent_name(&vault, "a"), "bank/vault", "a");
    forbidden(
        as_a.apply_value(&forged).await,
        "does not speak for Gateway bank/vault",
    );

    let key = |gateway: &NamespacedName| format!("{CORE}/secrets/{}", key_secret_name(gateway, 0));
    let own = as_a.get(&key(&edge)).await.expect_err("there is none");
    assert!(own.is(404), "{own}");
    forbidden(as_a.get(&key(&vault)).await, "secrets");
    forbidden(as_a.get(&format!("{CORE}/secrets")).await, "secrets");
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    for account in [host_account("b"), "sesame-controller".to_owned()] {
        let path = format!("{CORE}/serviceaccounts/{account}/token");
        forbidden(as_a.create(&path, &request).await, "serviceaccounts");
    }
    let own = format!("{CORE}/serviceaccounts/{}/token", host_account("a"));
    forbidden(as_a.create(&own, &request).await, "has to be bound");
    forbidden(
        as_a.delete(&format!("{CORE}/serviceaccounts/{}", host_account("b")))
            .await,
        "serviceaccounts",
    );
    let invitation = format!("{CORE}/serviceaccounts/{}", invitation_account("a"));
    assert!(site.is_gone(&invitation).await, "the invitation has ended");
}

/// A host that leaves is gone on both sides.
async fn leaves(site: &Site, host: &Host, client: &Client) {
    let output = host.leave();
    assert!(output.status.success(), "{}", words(&output));
    assert!(!host.state().join("cluster").exists());
    assert_eq!(std::fs::read_to_string(host.config()).unwrap(), "");
    assert!(
        site.is_gone(&format!("{CORE}/serviceaccounts/{}", host_account("b")))
            .await
    );
    let reports = site.admin().get(REPORTS).await.expect("a list");
    let reports = reports["items"].as_array().cloned().unwrap_or_default();
    assert!(
        reports.iter().all(|report| report["spec"]["host"] != "b"),
        "{reports:#?}"
    );
    eventually("its credential is of no use", SOON, async || {
        match client.get(&format!("{CORE}/configmaps")).await {
            Err(error) if error.is(401) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    refused(&host.leave(), "has joined no cluster");
}

/// A fleet's hosts have the keys of its Gateways, also of one that comes later.
async fn fleet(site: &Site) {
    let host = Host::new();
    let credential = host.joined(&site.token(&["--fleet", "default", "--host", "f"]));
    let client = site.cluster.bearer(&credential);
    let allowed = async |gateway: NamespacedName| {
        let path = format!("{CORE}/secrets/{}", key_secret_name(&gateway, 0));
        eventually(&format!("keys of {gateway}"), SOON, async || {
            match client.get(&path).await {
                Err(error) if error.is(404) => Ok(()),
                other => {
                    let role = site
                        .admin()
                        .get(&format!("{RBAC}/roles/{}", fleet_role("default")))
                        .await;
                    Err(format!("{:?} {role:?}", other.map(|_| "a Secret")))
                }
            }
        })
        .await;
    };
    allowed(our_edge()).await;
    let mut later = gateway("later", &[http_listener("http", 80, "")]);
    later["spec"]["gatewayClassName"] = json!("edge");
    site.apply(&[later]).await;
    allowed(NamespacedName::new("default", "later")).await;
    let others = key_secret_name(&NamespacedName::new("default", "other"), 0);
    forbidden(
        client.get(&format!("{CORE}/secrets/{others}")).await,
        "secrets",
    );
}
