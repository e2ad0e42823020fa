//! `kubectl sesame` against a real API server, and the permissions that it needs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod adopted;
mod reported;

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;

use serde_json::{Value, json};
use sesame_published::names::agent_name;
use sesame_tests::agent::{TEST_TIMEOUT, beside_test, words};
use sesame_tests::cluster::{Channel, TestCluster, User};
use sesame_tests::controller::{ControllerUnderTest, deployed, give_rights};
use sesame_tests::followed::followed;
use sesame_tests::manifests::{
    edge, edge_name, http_listener, http_route, layered, path, rule_to, served, yaml,
};
use sesame_tests::reports::report_serving;
use sesame_tests::wait::{eventually, holds};

pub(crate) struct Plugin {
    directory: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Plugin {
    pub(crate) async fn new(cluster: &TestCluster, user: &User) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["kubectl-sesame", "kubectl_complete-sesame"] {
            symlink(
                beside_test("sesame-controller"),
                directory.path().join(name),
            )
            .unwrap();
        }
        Self {
            directory,
            kubeconfig: cluster.kubeconfig(user).await,
        }
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, "")
    }

    fn run_with(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = Command::new(self.directory.path().join("kubectl-sesame"))
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the plugin runs");
        let mut stdin = child.stdin.take().unwrap();
        // The plugin may exit without reading its input.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Result<Value, String> {
        let output = self.run(&[arguments, &["-o", "json"]].concat());
        serde_json::from_slice(&output.stdout).map_err(|_| words(&output))
    }
}

const READER: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: default}
rules:
- {apiGroups: [gateway.networking.k8s.io], resources: [gateways, httproutes], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
";

#[tokio::test(flavor = "multi_thread")]
async fn plugin_shows_objects_with_rights_of_caller() {
    let (cluster, _controller, agent) = followed(&[80], &[]).await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("cart", &["192.0.2.7:80".parse().unwrap()]));
    objects.extend(served("stock", &["192.0.2.8:80".parse().unwrap()]));
    let route = |to: &str| {
        http_route(
            "shop",
            &["shop.test"],
            &[rule_to(to, &[path("PathPrefix", "/a")])],
        )
    };
    objects.push(route("cart"));
    cluster.apply_all(&objects).await;
    cluster.apply(READER).await.expect("a reader");
    agent.wait_live().await;
    let plugin = Plugin::new(&cluster, &User::Admin).await;

    eventually(
        "the Gateway is programmed and its host serves",
        TEST_TIMEOUT,
        async || {
            let rows = plugin.json(&["status", "-n", "default"])?;
            let row = &rows[0];
            let well = row["programmed"] == "True"
                && row["hosts"] == json!({"serving": 1, "all": 1})
                && row["problems"] == json!([])
                && row["attachedRoutes"] == 1;
            holds(well, || rows.to_string())
        },
    )
    .await;
    let table = plugin.run(&["status", "-A", "-o", "wide"]);
    assert_eq!(table.status.code(), Some(0), "{}", words(&table));
    for word in ["NAMESPACE", "PROGRAMMED", "GENERATION", "edge", "1/1"] {
        assert!(words(&table).contains(word), "{word}: {}", words(&table));
    }
    let none = plugin.run(&["status", "-n", "kube-system"]);
    assert_eq!(words(&none).trim(), "No Sesame Gateways found.");
    let lost = plugin.run(&["status", "other", "-n", "default"]);
    assert_eq!(lost.status.code(), Some(3), "{}", words(&lost));

    let hosts = plugin.json(&["hosts", "-A"]).unwrap();
    assert_eq!(hosts[0]["host"], "host-1", "{hosts}");
    assert_eq!(hosts[0]["status"]["state"], "Serving", "{hosts}");

    let explained = plugin.json(&["explain", "http://shop.test/a"]).unwrap();
    assert_eq!(explained["route"]["object"], "HTTPRoute/default/shop");
    let nothing = plugin.run(&["explain", "--gateway", "default/edge", "http://lost.test/"]);
    assert_eq!(nothing.status.code(), Some(1), "{}", words(&nothing));

    let why = plugin.run(&["why", "httproutes", "default/shop"]);
    assert_eq!(why.status.code(), Some(0), "{}", words(&why));
    assert!(words(&why).contains("Accepted=True"), "{}", words(&why));
    let why = plugin.run(&["why", "httproute", "default/lost"]);
    assert_eq!(why.status.code(), Some(1), "{}", words(&why));
    assert!(words(&why).contains("is served nowhere"), "{}", words(&why));

    let rules = plugin.json(&["access", "shop", "-n", "default"]).unwrap();
    assert_eq!(
        rules[0]["rule"], "HTTPRoute/default/shop/rules/0",
        "{rules}"
    );
    assert_eq!(rules[0]["hosts"], json!(["http://shop.test"]), "{rules}");
    let open = plugin.run(&["access", "-A", "--unprotected"]);
    assert_eq!(open.status.code(), Some(1), "{}", words(&open));
    let exempt = plugin.run(&["access", "-A", "--exempt"]);
    assert_eq!(words(&exempt).trim(), "No rules found.");

    let names = plugin.run(&["status", "-A", "-o", "name"]);
    let name = "gateway.gateway.networking.k8s.io/edge\n";
    assert_eq!(words(&names), name);
    let names = plugin.run(&["hosts", "-A", "-o", "name"]);
    let name = agent_name(&edge_name(), "host-1");
    let name = format!("gatewayagent.projectsesame.io/{name}\n");
    assert_eq!(words(&names), name);
    let bare = plugin.run(&["status", "-A", "--no-headers"]);
    assert!(
        words(&bare).starts_with("default   edge   edge "),
        "{}",
        words(&bare)
    );
    let nameless = plugin.run(&["explain", "-o", "name", "http://shop.test/a"]);
    assert_eq!(nameless.status.code(), Some(3), "{}", words(&nameless));
    let yaml_of = plugin.run(&["status", "-A", "-o", "yaml"]);
    assert!(
        words(&yaml_of).contains("programmed: "),
        "{}",
        words(&yaml_of)
    );

    let same = plugin.run_with(&["diff", "-f", "-"], &yaml(&[route("cart")]));
    assert_eq!(same.status.code(), Some(0), "{}", words(&same));
    let file = plugin.directory.path().join("other.yaml");
    std::fs::write(&file, yaml(&[route("stock")])).unwrap();
    let other = plugin.run(&["diff", "-f", &file.to_string_lossy()]);
    assert_eq!(other.status.code(), Some(1), "{}", words(&other));
    for word in ["HTTPRoute/default/shop", "/cart/", "/stock/"] {
        assert!(words(&other).contains(word), "{word}: {}", words(&other));
    }
    let log = "shop.test 192.0.2.1 - - [t] \"GET /a?hidden HTTP/1.1\" 200 5 \"-\" \"hidden\"\n";
    let other = file.to_string_lossy();
    let replayed = plugin.run_with(&["diff", "-f", &other, "--requests", "-"], log);
    assert_eq!(replayed.status.code(), Some(1), "{}", words(&replayed));
    for word in ["GET http://shop.test/a\n", "/cart/", "/stock/"] {
        assert!(words(&replayed).contains(word), "{}", words(&replayed));
    }
    assert!(!words(&replayed).contains("hidden"), "{}", words(&replayed));
    let found = cluster
        .get("/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes/shop")
        .await;
    assert_eq!(
        found["spec"]["rules"][0]["backendRefs"][0]["name"], "cart",
        "the plugin must not write"
    );

    plugin_shows_layers(&cluster, &plugin).await;

    let reader = Plugin::new(&cluster, &User::service_account("default", "reader")).await;
    let rows = reader.json(&["status", "-n", "default"]).unwrap();
    assert_eq!(rows[0]["name"], "edge", "{rows}");
    assert_eq!(rows[0]["hosts"], Value::Null, "{rows}");
    let refused = reader.run(&["status", "-A"]);
    assert_eq!(refused.status.code(), Some(3), "{}", words(&refused));
    assert!(words(&refused).contains("forbidden"), "{}", words(&refused));
    let refused = reader.run(&["hosts", "-A"]);
    assert_eq!(refused.status.code(), Some(3), "{}", words(&refused));
    let refused = plugin.run(&["status", "--context", "no-such-context"]);
    assert_eq!(refused.status.code(), Some(3), "{}", words(&refused));
    assert!(
        words(&refused).contains("no-such-context"),
        "{}",
        words(&refused)
    );
}

async fn plugin_shows_layers(cluster: &TestCluster, plugin: &Plugin) {
    give_rights(cluster, "contour/crds.yaml").await;
    cluster.apply_all(&layered("layers", "cart")).await;
    for (kind, host) in [("HTTPProxy", "proxy.test"), ("Ingress", "ingress.test")] {
        let object = format!("{kind}/default/layers");
        eventually(&format!("{object} is served"), TEST_TIMEOUT, async || {
            let explained = plugin.json(&["explain", &format!("http://{host}/")])?;
            let is_served = explained["route"]["object"] == *object;
            holds(is_served, || explained.to_string())
        })
        .await;
        let why = plugin.run(&["why", kind, "default/layers"]);
        assert_eq!(why.status.code(), Some(0), "{}", words(&why));
        let rules = plugin.json(&["access", "layers", "-n", "default"]);
        let rules = rules.unwrap().to_string();
        assert!(rules.contains(&format!("{object}/rules/0")), "{rules}");
        let changed = yaml(&layered("layers", "stock"));
        let other = plugin.run_with(&["diff", "-f", "-"], &changed);
        assert_eq!(other.status.code(), Some(1), "{}", words(&other));
        assert!(words(&other).contains(&object), "{}", words(&other));
    }
    cluster.apply_all(&layered("layers", "gone")).await;
    let words_of_error = "error ServiceError/ServiceUnresolvedReference: ";
    eventually("the error is shown", TEST_TIMEOUT, async || {
        let why = plugin.run(&["why", "httpproxy", "default/layers"]);
        let shown = words(&why);
        let is_shown = why.status.code() == Some(1) && shown.contains(words_of_error);
        holds(is_shown, || shown)
    })
    .await;
}

struct Watching {
    child: Child,
    lines: mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Watching {
    fn start(plugin: &Plugin, arguments: &[&str]) -> Self {
        let mut child = Command::new(plugin.directory.path().join("kubectl-sesame"))
            .args(arguments)
            .env("KUBECONFIG", &plugin.kubeconfig)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the plugin runs");
        let (sender, lines) = mpsc::channel();
        let (out, errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let streams: [Box<dyn Read + Send>; 2] = [Box::new(out), Box::new(errors)];
        for stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    // The test may already have dropped the receiver.
                    let _ = sender.send(line);
                }
            });
        }
        Self {
            child,
            lines,
            seen: Vec::new(),
        }
    }

    /// Waits for a line after the previous match.
    async fn wait(&mut self, words: &str) {
        eventually(&format!("{words:?} is shown"), TEST_TIMEOUT, async || {
            while let Ok(line) = self.lines.try_recv() {
                self.seen.push(line);
            }
            let found = self.seen.iter().position(|line| line.contains(words));
            let found = found.ok_or_else(|| self.seen.join("\n"))?;
            self.seen.drain(..=found);
            Ok::<_, String>(())
        })
        .await;
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_watch_shows_changes_after_api_server_outage() {
    let mut cluster = deployed(Channel::Standard).await;
    let _controller = ControllerUnderTest::start(&cluster, &[]).await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("cart", &["192.0.2.7:80".parse().unwrap()]));
    cluster.apply_all(&objects).await;
    let plugin = Plugin::new(&cluster, &User::Admin).await;
    let mut status = Watching::start(&plugin, &["status", "-n", "default", "-w", "-o", "json"]);
    status.wait("\"attachedRoutes\": 0").await;
    let mut hosts = Watching::start(&plugin, &["hosts", "-A", "--watch"]);
    hosts.wait("No hosts found.").await;

    let route = http_route("shop", &["shop.test"], &[rule_to("cart", &[])]);
    cluster.apply_all(&[route]).await;
    status.wait("\"attachedRoutes\": 1").await;
    report_serving(cluster.admin(), &edge_name(), "host-1", "192.0.2.1").await;
    hosts.wait("host-1").await;

    cluster.stop_apiserver();
    status.wait("error: ").await;
    cluster.start_apiserver().await;
    let other = http_route("other", &["other.test"], &[rule_to("cart", &[])]);
    cluster.apply_all(&[other]).await;
    status.wait("\"attachedRoutes\": 2").await;

    // The plugin must exit when the reader closes the pipe.
    let mut piped = Command::new(plugin.directory.path().join("kubectl-sesame"))
        .args(["status", "-n", "default", "--watch"])
        .env("KUBECONFIG", &plugin.kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut reader = BufReader::new(piped.stdout.take().unwrap());
    reader.read_line(&mut first).unwrap();
    assert!(first.starts_with("NAMESPACE   NAME   CLASS"), "{first}");
    drop(reader);
    let more = http_route("more", &["more.test"], &[rule_to("gone", &[])]);
    let gateway = edge(&[
        http_listener("http", 80, "*.test"),
        http_listener("more", 81, ""),
    ]);
    cluster.apply_all(&[more]).await;
    cluster.apply_all(&gateway).await;
    eventually("the plugin exits", TEST_TIMEOUT, async || {
        let ended = piped.try_wait().unwrap();
        ended.map(|_| ()).ok_or_else(|| "still running".to_owned())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_completes_arguments() {
    let directory = tempfile::tempdir().unwrap();
    let completes = directory.path().join("kubectl_complete-sesame");
    symlink(beside_test("sesame-controller"), &completes).unwrap();
    let output = Command::new(completes).args(["ex"]).output().unwrap();
    assert_eq!(words(&output), "explain\n:4\n");
    let plugin = directory.path().join("kubectl-sesame");
    symlink(beside_test("sesame-controller"), &plugin).unwrap();
    let output = Command::new(plugin).args(["completion", "bash"]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", words(&output));
    assert!(
        words(&output).contains("kubectl-sesame"),
        "{}",
        words(&output)
    );
}
