//! Follows each task page from top to bottom with a real agent and Envoy.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, agent_binary};
use sesame_tests::certs::Authority;
use sesame_tests::datagrams;
use sesame_tests::manifests;
use sesame_tests::wait::{eventually, holds};

use crate::objects;
use crate::pages::{Block, Page, below, page};
use crate::shell;
use crate::shown::{matches, steps};
use crate::stand_ins::StandIns;

/// Other pages use this page's GatewayClass and Gateway.
const FIRST: &str = "docs/tasks/expose-a-service.md";

/// The test replaces `kubectl create` with a manifest.
const RUN: &[&str] = &[
    "curl",
    "openssl",
    "sesame-agent",
    "grep",
    "sort",
    "uniq",
    "echo",
    "sed",
];

struct Reading {
    agent: AgentUnderTest,
    directory: tempfile::TempDir,
    /// By kind, namespace and name.
    objects: BTreeMap<[String; 3], Value>,
    stand_ins: StandIns,
    authority: Authority,
    /// True if the agent serves all of `objects`.
    current: bool,
}

fn key(object: &Value) -> [String; 3] {
    let metadata = &object["metadata"];
    let text = |value: &Value, other: &str| value.as_str().unwrap_or(other).to_owned();
    let namespace = text(&metadata["namespace"], "default");
    [
        text(&object["kind"], ""),
        namespace,
        text(&metadata["name"], ""),
    ]
}

fn ports<'a>(objects: impl Iterator<Item = &'a Value>) -> Vec<u16> {
    let listeners =
        objects.flat_map(|one| one["spec"]["listeners"].as_array().into_iter().flatten());
    let ports = listeners.filter_map(|listener| listener["port"].as_u64());
    let mut ports: Vec<u16> = ports
        .map(|port| u16::try_from(port).expect("a port"))
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

impl Reading {
    fn begin(page: &Page) -> Self {
        let mut known: Vec<Value> = objects::documented_objects(page)
            .into_iter()
            .map(|(_, object)| object)
            .collect();
        let has = |kind: &str| known.iter().any(|object| object["kind"] == kind);
        let first = objects::documented_objects(&self::page(FIRST))
            .into_iter()
            .map(|(_, object)| object);
        let base: Vec<Value> = first
            .filter(|object| object["kind"] == "GatewayClass" || object["kind"] == "Gateway")
            .filter(|object| object["kind"].as_str().is_some_and(|kind| !has(kind)))
            .collect();
        known.extend(base.iter().cloned());
        let ports = ports(known.iter());
        let agent = Setup::with_ports(&ports).prepare();
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::new("backends");
        let ca = directory.path().join("backend-ca.crt");
        std::fs::write(ca, authority.pem()).expect("a certificate");
        programs(&directory.path().join(".programs"), &agent, &ports);
        Self {
            agent,
            directory,
            objects: base
                .into_iter()
                .map(|object| (key(&object), object))
                .collect(),
            stand_ins: StandIns::default(),
            authority,
            current: false,
        }
    }

    fn insert(&mut self, object: Value) {
        self.objects.insert(key(&object), object);
        self.current = false;
    }

    async fn serve(&mut self, starts: bool) {
        if self.current {
            return;
        }
        let mut objects: Vec<Value> = self.objects.values().cloned().collect();
        let made = self
            .stand_ins
            .start_missing(&objects, &self.authority)
            .await;
        objects.extend(made);
        self.agent.write("all.yaml", &manifests::yaml(&objects));
        if starts {
            self.agent.restart();
        }
        self.current = true;
    }

    fn run(&self, line: &str) -> String {
        let programs = self.directory.path().join(".programs");
        let path = std::env::var("PATH").expect("a PATH");
        let output = Command::new("sh")
            .args(["-c", line])
            .current_dir(self.directory.path())
            .env("PATH", format!("{}:{path}", programs.display()))
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors = if output.stdout.is_empty() {
            errors
        } else {
            "".into()
        };
        format!("{}{errors}", String::from_utf8_lossy(&output.stdout))
    }

    /// The page must have created any referenced files earlier.
    fn create(&mut self, words: &[String]) -> String {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let file = |name: &str| {
            let text = std::fs::read_to_string(self.directory.path().join(name));
            text.unwrap_or_else(|error| {
                panic!("{name}: {error}: the page did not create this file")
            })
        };
        let option = |name: &str| {
            let found = words
                .iter()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            found.unwrap_or_else(|| panic!("{words:?} has no {name}"))
        };
        let namespace = words
            .iter()
            .find_map(|word| word.strip_prefix("--namespace="));
        let namespace = namespace.unwrap_or("default");
        let (object, output) = match words.as_slice() {
            ["kubectl", "create", "secret", "tls", name, ..] => (
                json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
                    "metadata": {"name": name, "namespace": namespace},
                    "stringData": {"tls.crt": file(option("--cert")), "tls.key": file(option("--key"))}}),
                format!("secret/{name} created"),
            ),
            ["kubectl", "create", "configmap", name, ..] => {
                let from = option("--from-file");
                (
                    json!({"apiVersion": "v1", "kind": "ConfigMap",
                        "metadata": {"name": name, "namespace": namespace}, "data": {from: file(from)}}),
                    format!("configmap/{name} created"),
                )
            }
            _ => panic!("{words:?} creates an unsupported kind"),
        };
        self.insert(object);
        output
    }

    /// Each command must print the shown output, possibly after retries.
    async fn follow(&mut self, block: &Block, place: &str, starts: &mut bool) {
        for (line, shown) in steps(block) {
            let commands = shell::commands(&line);
            let is = |program: &str| commands.iter().any(|words| words[0] == program);
            if is("kubectl") {
                let output = self.create(&commands[0]);
                assert!(
                    shown.is_empty() || matches(&output, &shown),
                    "{place}: {line}: {output}"
                );
                continue;
            }
            for words in &commands {
                assert!(
                    RUN.contains(&words[0].as_str()),
                    "{place}: {line}: this test does not support {words:?}"
                );
            }
            if is("curl") || is("sesame-agent") {
                self.serve(std::mem::take(starts)).await;
                eventually(&format!("{place}: {line}"), TEST_TIMEOUT, async || {
                    let output = self.run(&line);
                    holds(matches(&output, &shown), || {
                        format!(
                            "printed:\n{output}\nshown:\n{shown}\n{}",
                            self.agent.log_tail()
                        )
                    })
                })
                .await;
            } else {
                let output = self.run(&line);
                assert!(
                    shown.is_empty() || matches(&output, &shown),
                    "{place}: {line}: {output}"
                );
            }
        }
    }

    /// Hosts may lack a UDP client, so pages contain no commands that send datagrams.
    async fn datagrams(&self) {
        let routes = self
            .objects
            .values()
            .filter(|object| object["kind"] == "UDPRoute");
        for route in routes {
            let section = &route["spec"]["parentRefs"][0]["sectionName"];
            let listeners = self.objects.values();
            let mut listeners =
                listeners.flat_map(|one| one["spec"]["listeners"].as_array().into_iter().flatten());
            let listener = listeners.find(|listener| listener["name"] == *section);
            let port = listener
                .and_then(|listener| listener["port"].as_u64())
                .expect("a listener");
            let address = self.agent.address(u16::try_from(port).expect("a port"));
            let name = route["spec"]["rules"][0]["backendRefs"][0]["name"]
                .as_str()
                .expect("a name");
            eventually(
                "the backend responds to a datagram",
                TEST_TIMEOUT,
                async || {
                    let answer = datagrams::ask(address, "ping", Duration::from_secs(1)).await;
                    let good = answer
                        .as_deref()
                        .is_ok_and(|answer| answer == format!("{name}: ping"));
                    holds(good, || format!("{answer:?}"))
                },
            )
            .await;
        }
    }
}

/// Writes wrappers: `curl` connects to local ports, and `sesame-agent` to this agent's socket.
fn programs(directory: &Path, agent: &AgentUnderTest, ports: &[u16]) {
    std::fs::create_dir(directory).expect("a directory");
    let path = std::env::var_os("PATH").expect("a PATH");
    let curl: PathBuf = std::env::split_paths(&path)
        .map(|directory| directory.join("curl"))
        .find(|path| path.is_file())
        .expect("no curl on the PATH (Debian: curl)");
    let to: Vec<String> = ports
        .iter()
        .map(|port| format!("--connect-to :{port}:{}", agent.address(*port)))
        .collect();
    let (binary, runtime) = (agent_binary(), agent.runtime());
    for (name, line) in [
        (
            "curl",
            format!(
                "{} --silent --show-error --max-time 20 {} \"$@\"",
                curl.display(),
                to.join(" ")
            ),
        ),
        (
            "sesame-agent",
            format!(
                "{} \"$@\" --runtime-dir {}",
                binary.display(),
                runtime.display()
            ),
        ),
    ] {
        let path = directory.join(name);
        std::fs::write(&path, format!("#!/bin/sh\nexec {line}\n")).expect("a program");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a program");
    }
}

async fn follow(page: &Page) -> usize {
    let place = page.path.display().to_string();
    let mut reading = Reading::begin(page);
    let mut starts = true;
    let mut followed = 0;
    for block in page.blocks() {
        let place = format!("{place}:{}", block.line);
        match block.language.as_str() {
            "yaml" => {
                let values: Vec<Value> = serde_saphyr::from_multiple(&block.text)
                    .unwrap_or_else(|error| panic!("{place}: {error}"));
                for value in values
                    .into_iter()
                    .filter(|value| value.get("kind").is_some())
                {
                    reading.insert(value);
                }
            }
            "console" => {
                reading.follow(&block, &place, &mut starts).await;
                followed += 1;
            }
            _ => {}
        }
    }
    if !starts {
        reading.datagrams().await;
    }
    followed
}

#[tokio::test(flavor = "multi_thread")]
async fn task_pages_print_documented_output() {
    let only = std::env::var("SESAME_PAGE").unwrap_or_default();
    let mut followed = 0;
    for page in below("docs/tasks") {
        if page.path.to_string_lossy().contains(&only) {
            followed += follow(&page).await;
        }
    }
    assert!(
        followed >= 10 || !only.is_empty(),
        "followed only {followed} blocks"
    );
}
