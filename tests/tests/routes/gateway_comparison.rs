//! `sesame-agent compare` with two real Envoys.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, words};
use sesame_tests::backend::Backend;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::manifests::{
    edge, http_listener, http_route, https_listener, path, rule_to, served, yaml,
};

const HOST: &str = "a.test";

/// A gateway with the same routes, except for the given values.
struct GatewayValues {
    color: &'static str,
    location: &'static str,
    removed: Option<&'static str>,
    alpn: &'static str,
}

const OLD: GatewayValues = GatewayValues {
    color: "red",
    location: "/old",
    removed: None,
    alpn: "h2,http/1.1",
};

const NEW: GatewayValues = GatewayValues {
    color: "blue",
    location: "/new",
    removed: Some("/gone"),
    alpn: "http/1.1",
};

fn objects(values: &GatewayValues, backend: &Backend, leaf: &Leaf) -> Vec<Value> {
    let mut listener = https_listener("https", 443, HOST, "pair");
    listener["tls"]["options"]["projectsesame.io/alpn"] = json!(values.alpn);
    let mut objects = edge(&[http_listener("http", 80, ""), listener]);
    objects.push(leaf.secret("pair"));
    objects.extend(served("shop", &[backend.address()]));
    let rule = |prefix: &str, filter: Value| {
        let mut rule = rule_to("shop", &[path("PathPrefix", prefix)]);
        rule["filters"] = json!([filter]);
        rule
    };
    let header = |name: &str, value: &str| {
        json!({"type": "ResponseHeaderModifier",
               "responseHeaderModifier": {"set": [{"name": name, "value": value}]}})
    };
    let mut moved = rule(
        "/moved",
        json!({"type": "RequestRedirect", "requestRedirect": {
            "path": {"type": "ReplaceFullPath", "replaceFullPath": values.location}}}),
    );
    moved.as_object_mut().expect("a rule").remove("backendRefs");
    let mut rules = vec![
        rule_to("shop", &[path("PathPrefix", "/same")]),
        rule("/header", header("x-color", values.color)),
        rule("/backend", header("x-backend", values.color)),
        moved,
    ];
    if values.removed != Some("/gone") {
        rules.push(rule_to("shop", &[path("PathPrefix", "/gone")]));
    }
    objects.push(http_route("shop", &[HOST], &rules));
    objects
}

struct ComparedGateways {
    old: AgentUnderTest,
    new: AgentUnderTest,
    directory: tempfile::TempDir,
    log: PathBuf,
    ca: PathBuf,
}

impl ComparedGateways {
    async fn start(backend: &Backend) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, content: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, content).expect("a file");
            path
        };
        let authority = Authority::new("servers");
        let ca = write("ca.pem", authority.pem());
        let paths = [
            "/same?token=hidden1",
            "/gone/1",
            "/gone/2",
            "/moved",
            "/header",
            "/backend",
        ];
        let line = |path: &str| {
            format!("{HOST} 192.0.2.1 - - [t] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"curl\"\n")
        };
        let post = line("/same/post").replace("GET", "POST");
        let log = write("access.log", &(paths.map(line).concat() + &post));
        let all = |values| yaml(&objects(values, backend, &authority.issue(&[HOST])));
        let setup = || Setup::with_ports(&[80, 443]);
        let old = setup().start(&[("all.yaml", &all(&OLD))]);
        let mut new = setup().prepare_beside(&old);
        new.write("all.yaml", &all(&NEW));
        new.restart();
        for (agent, values) in [(&old, &OLD), (&new, &NEW)] {
            agent.wait_healthy().await;
            let served =
                |reply: &sesame_tests::client::Reply| reply.header("x-color") == Some(values.color);
            agent
                .wait_served(&agent.get(80, HOST, "/header"), served)
                .await;
        }
        Self {
            old,
            new,
            directory,
            log,
            ca,
        }
    }

    fn compare(&self, urls: [String; 2], log: &Path, more: &[&str]) -> (Option<i32>, Value) {
        let [old, new] = urls;
        let log = log.display().to_string();
        let line = ["compare", "--requests", &log, "--old", &old, "--new", &new];
        let line = [&line[..], &["--rate", "1000", "-o", "json"], more].concat();
        let output = self.old.command(&line);
        let report = serde_json::from_slice(&output.stdout);
        let report = report.unwrap_or_else(|error| panic!("{error}: {}", words(&output)));
        (output.status.code(), report)
    }
}

fn url(agent: &AgentUnderTest, port: u16) -> String {
    let scheme = if port == 443 { "https" } else { "http" };
    format!("{scheme}://{}", agent.address(port))
}

/// Returns the number of requests by cause.
fn causes(report: &Value) -> BTreeMap<&str, u64> {
    let groups = report["groups"].as_array().expect("groups").iter();
    let counts = groups.map(|it| (it["cause"].as_str().expect("text"), it["requests"].as_u64()));
    let mut causes = BTreeMap::new();
    for (cause, count) in counts {
        *causes.entry(cause).or_default() += count.expect("a number");
    }
    causes
}

#[tokio::test(flavor = "multi_thread")]
async fn compare_lists_differences_of_two_gateways() {
    let backend = Backend::start("shop").await;
    let gateways = ComparedGateways::start(&backend).await;
    let ComparedGateways {
        old,
        new,
        directory,
        log,
        ca,
    } = &gateways;

    let plain = [url(old, 80), url(new, 80)];
    let named = ["--backend-header", "X-Backend"];
    let (code, report) = gateways.compare(plain.clone(), log, &named);
    assert_eq!(
        (code, &report["requests"]),
        (Some(1), &json!(6)),
        "{report:#}"
    );
    let expected = [
        ("backend", 1),
        ("headers", 1),
        ("redirect", 1),
        ("status", 2),
    ];
    assert_eq!(causes(&report), BTreeMap::from(expected), "{report:#}");
    assert_eq!(report["different"], 5, "{report:#}");
    // The backend's body contains the request's random ID.
    assert_ne!(report["unstable"], 0, "{report:#}");
    let left_out = &report["leftOut"];
    assert_eq!(
        (&left_out["secretParameters"], &left_out["unsafeMethods"]),
        (&json!(1), &json!(1))
    );
    let status = &report["groups"][0];
    assert_eq!(
        (&status["old"], &status["new"]),
        (&json!("200"), &json!("404")),
        "{report:#}"
    );
    let examples = ["1", "2"].map(|it| format!("GET http://{HOST}/gone/{it}"));
    assert_eq!(status["examples"], json!(examples), "{report:#}");
    assert!(!report.to_string().contains("hidden"), "{report:#}");
    let sent = backend.requests();
    assert!(
        sent.iter()
            .all(|it| it.method == "GET" && !it.path.contains("hidden")),
        "{sent:?}"
    );

    let ignored = [
        "--ignore", "status", "--ignore", "redirect", "--ignore", "backend",
    ];
    let ignored = [&ignored[..], &["--ignore-header", "X-Color"], &named].concat();
    let (code, report) = gateways.compare(plain.clone(), log, &ignored);
    assert_eq!(
        (code, &report["different"]),
        (Some(0), &json!(0)),
        "{report:#}"
    );
    let (code, report) = gateways.compare([url(old, 80), url(old, 80)], log, &[]);
    assert_eq!(
        (code, &report["different"]),
        (Some(0), &json!(0)),
        "{report:#}"
    );

    let ca = ca.display().to_string();
    let secure = [url(old, 443), url(new, 443)];
    let same = directory.path().join("same.log");
    let line = format!(
        r#"{{"method":"GET","authority":"{HOST}","path":"/same","requested_server_name":"{HOST}"}}"#
    );
    std::fs::write(&same, line).expect("a log");
    let (code, report) = gateways.compare(secure.clone(), &same, &["--ca", &ca]);
    assert_eq!(code, Some(1), "{report:#}");
    let expected = BTreeMap::from([("certificate", 1), ("protocol", 1)]);
    assert_eq!(causes(&report), expected, "{report:#}");
    let protocol = report["groups"].as_array().expect("groups").iter();
    let protocol: Vec<_> = protocol.filter(|it| it["cause"] == "protocol").collect();
    assert_eq!(protocol[0]["new"], "HTTP/1.1, TLSv1_3", "{report:#}");
    let (code, report) = gateways.compare([url(old, 443), url(old, 443)], &same, &["--insecure"]);
    assert_eq!(
        (code, &report["different"]),
        (Some(0), &json!(0)),
        "{report:#}"
    );
    let same = same.display().to_string();
    let line = [
        "compare",
        "--requests",
        &same,
        "--old",
        &plain[0],
        "--new",
        &plain[1],
    ];
    let output = old.command(&line);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(words(&output).contains("another scheme"), "{output:?}");

    // The test's certificates are not trusted, and nothing listens on port 1.
    let log = log.display().to_string();
    for (old_url, cause) in [
        (&*secure[0], "invalid peer certificate"),
        ("http://127.0.0.1:1", ""),
    ] {
        let line = [
            "compare",
            "--requests",
            &log,
            "--old",
            old_url,
            "--new",
            old_url,
        ];
        let output = old.command(&[&line[..], &["--rate", "1000"]].concat());
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let expected = format!("neither gateway answers any, for example: {cause}");
        assert!(
            words(&output).contains(&expected) || cause.is_empty(),
            "{output:?}"
        );
    }
}
