//! The command `explain`, with manifests and with a running agent.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, words};
use sesame_tests::backend::Backend;
use sesame_tests::manifests::{edge, http_listener, http_route, path, rule_to, served, yaml};
use sesame_tests::wait::{eventually, holds};

const URL: &str = "http://a.test/b//c";

fn objects(backend: &Backend) -> Vec<Value> {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("shop", &[backend.address()]));
    let mut older = http_route(
        "older",
        &["a.test"],
        &[rule_to("shop", &[path("PathPrefix", "/b")])],
    );
    older["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    objects.push(older);
    // `older` has the same match.
    let mut younger = http_route(
        "younger",
        &["a.test"],
        &[rule_to("shop", &[path("PathPrefix", "/b")])],
    );
    younger["metadata"]["creationTimestamp"] = json!("2021-01-01T00:00:00Z");
    objects.push(younger);
    objects.push(http_route(
        "shop",
        &["a.test"],
        &[rule_to("shop", &[path("PathPrefix", "/shop")])],
    ));
    objects
}

/// `explain` reads the stored configuration.
async fn started(backend: &Backend) -> AgentUnderTest {
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects(backend)))]);
    agent.wait_ok(&agent.get(80, "a.test", "/b")).await;
    let runtime = agent.runtime().display().to_string();
    eventually(
        "the served configuration is stored",
        TEST_TIMEOUT,
        async || {
            let output = agent.command(&["explain", "--runtime-dir", &runtime, URL]);
            holds(output.status.success(), || words(&output))
        },
    )
    .await;
    agent
}

fn explained(agent: &AgentUnderTest, arguments: &[&str]) -> (Option<i32>, Value) {
    answered(agent, &[&["explain"], arguments].concat())
}

fn answered(agent: &AgentUnderTest, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = agent.command(&[arguments, &["--output", "json"]].concat());
    let value = serde_json::from_slice(&output.stdout);
    let value = value.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code(), value)
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_request_matches_manifests_and_running_host() {
    let backend = Backend::start("shop").await;
    let agent = started(&backend).await;
    let manifests = agent.manifests().display().to_string();
    let (runtime, state) = (
        agent.runtime().display().to_string(),
        agent.state().display().to_string(),
    );
    let sources: [&[&str]; 3] = [
        &["--manifests", &manifests],
        &["--runtime-dir", &runtime],
        &["--state-dir", &state],
    ];
    let explanations = sources.map(|source| explained(&agent, &[source, &["GET", URL]].concat()));
    let (code, first) = &explanations[0];
    assert_eq!(*code, Some(0), "{first:#}");
    assert_eq!(first["route"]["object"], "HTTPRoute/default/older");
    assert_eq!(first["path"], "/b/c");
    assert_eq!(first["outcome"]["kind"], "forwarded");
    let remark = first["notes"][0].as_str().unwrap_or_default();
    assert!(
        remark.starts_with("HTTPRoute/default/younger: rules[0].matches[0] is never reached")
            && remark.ends_with("comes first because it is older"),
        "{remark}"
    );
    assert_eq!(explanations[1], explanations[0]);
    // The stored configuration contains no unreachable matches.
    let mut without = explanations[0].clone();
    without.1["notes"] = serde_json::json!([]);
    assert_eq!(explanations[2], without);

    let (code, none) = explained(&agent, &["--runtime-dir", &runtime, "http://b.test/"]);
    assert_eq!(code, Some(1), "{none:#}");
    assert_eq!(none["outcome"]["status"], 404);

    let text = agent.command(&["explain", "--runtime-dir", &runtime, URL]);
    let output = words(&text);
    for part in [
        "TAKEN   HTTPRoute/default/older",
        "is normalized to /b/c",
        "does not have the prefix /shop",
    ] {
        assert!(output.contains(part), "{output}");
    }
    for (arguments, part) in [
        (
            &["explain", "--runtime-dir", &runtime, "a.test/b"][..],
            "it has no scheme",
        ),
        (
            &[
                "explain",
                "--runtime-dir",
                &runtime,
                "--gateway",
                "x/y",
                URL,
            ],
            "no Gateway x/y is served",
        ),
    ] {
        let refused = agent.command(arguments);
        assert_eq!(refused.status.code(), Some(3), "{refused:?}");
        assert!(words(&refused).contains(part), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn why_shows_where_object_is_served_and_problems() {
    let backend = Backend::start("shop").await;
    let agent = started(&backend).await;
    let manifests = agent.manifests().display().to_string();
    let runtime = agent.runtime().display().to_string();
    for source in [["--manifests", &manifests], ["--runtime-dir", &runtime]] {
        let why = |kind: &str, name: &str| {
            answered(&agent, &[&["why", kind, name], &source[..]].concat())
        };
        let (code, older) = why("httproute", "default/older");
        assert_eq!(code, Some(0), "{older:#}");
        let place = &older["served"][0];
        assert_eq!(place["part"], "HTTPRoute/default/older/rules/0/matches/0");
        assert_eq!(place["host"], "a.test");
        assert_eq!(older["conditions"][0]["type"], "Accepted");
        let (code, younger) = why("HTTPRoutes", "younger");
        assert_eq!(code, Some(1), "{younger:#}");
        assert_eq!(younger["served"], json!([]));
        let problem = younger["problems"][0].as_str().unwrap_or_default();
        assert!(problem.contains("is never reached"), "{younger:#}");
        assert!(
            problem.contains("HTTPRoute/default/older")
                || problem.contains("HTTPRoute default/older"),
            "{problem}"
        );
        let (code, service) = why("service", "default/shop");
        assert_eq!(code, Some(0), "{service:#}");
        assert_eq!(
            service["served"].as_array().map(Vec::len),
            Some(2),
            "{service:#}"
        );
    }
    let none = agent.command(&[
        "why",
        "httproute",
        "default/none",
        "--manifests",
        &manifests,
    ]);
    assert_eq!(none.status.code(), Some(3), "{none:?}");
    assert!(words(&none).contains("no HTTPRoute"), "{none:?}");
}

struct ManifestPair {
    agent: AgentUnderTest,
    directory: tempfile::TempDir,
    old: String,
    new: String,
}

/// The new manifests have a route whose path is more specific than `older`.
async fn manifest_pair() -> ManifestPair {
    let backend = Backend::start("shop").await;
    let agent = Setup::with_ports(&[80]).prepare();
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, objects: &[Value]| {
        let at = directory.path().join(name);
        std::fs::create_dir(&at).expect("a directory");
        std::fs::write(at.join("all.yaml"), yaml(objects)).expect("a manifest");
        at.display().to_string()
    };
    let old = objects(&backend);
    let mut new = old.clone();
    new.push(http_route(
        "taker",
        &["a.test"],
        &[rule_to("shop", &[path("PathPrefix", "/b/c")])],
    ));
    let (old, new) = (write("old", &old), write("new", &new));
    ManifestPair {
        agent,
        directory,
        old,
        new,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_lists_matches_changed_by_other_manifests() {
    let ManifestPair {
        agent,
        directory: _directory,
        old,
        new,
    } = manifest_pair().await;
    let (code, same) = answered(&agent, &["diff", "--manifests", &old, &old]);
    assert_eq!((code, &same), (Some(0), &json!([])));
    let (code, changed) = answered(&agent, &["diff", "--manifests", &old, &new]);
    assert_eq!(code, Some(1), "{changed:#}");
    assert_eq!(changed.as_array().map(Vec::len), Some(1), "{changed:#}");
    let change = &changed[0];
    assert_eq!(change["route"], "HTTPRoute/default/taker/rules/0/matches/0");
    assert_eq!(change["request"], "GET http://a.test/b/c");
    for (side, route) in [("before", "older"), ("after", "taker")] {
        let explanation = change[side].as_str().unwrap_or_default();
        assert!(
            explanation.contains(&format!("by HTTPRoute/default/{route}/")),
            "{change:#}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn diff_lists_logged_requests_handled_differently() {
    let ManifestPair {
        agent,
        directory,
        old,
        new,
    } = manifest_pair().await;
    let log = directory.path().join("access.log");
    let lines = [
        r#"{"method":"GET","host":"a.test","path":"/b/c/1","port":80,"protocol":"HTTP/1.1"}"#,
        r#"a.test 192.0.2.1 - - [t] "GET /b/c/2?token=hidden HTTP/1.1" 200 5 "-" "hidden""#,
        r#"192.0.2.1 - - [t] "GET /shop HTTP/1.1" 200 5 "-" "curl""#,
        r#"[t] "GET /b/c/1 HTTP/2" 200 - 0 5 1 0 "-" "hidden" "id" "a.test" "10.0.0.1:80""#,
        r#"192.0.2.1 - - [t] "-" 400 0 "-" "-""#,
    ];
    std::fs::write(&log, lines.join("\n")).expect("a log");
    let log = log.display().to_string();
    let diff = |old: &str, more: &[&str]| {
        let start = ["diff", "--manifests", old, &new, "--requests", &log];
        answered(&agent, &[&start[..], more].concat())
    };
    let (code, same) = diff(&new, &["--host", "a.test"]);
    assert_eq!((code, &same["requests"]), (Some(0), &json!(4)), "{same:#}");
    let (code, report) = diff(&old, &["--host", "a.test"]);
    assert_eq!(code, Some(1), "{report:#}");
    assert_eq!(report["changed"], 3, "{report:#}");
    assert_eq!(report["unreadable"]["first"][0]["line"], 5, "{report:#}");
    let groups = report["groups"].as_array().expect("groups");
    assert_eq!(groups.len(), 1, "{report:#}");
    let examples = ["GET http://a.test/b/c/1", "GET http://a.test/b/c/2"];
    assert_eq!(groups[0]["examples"], json!(examples));
    for (side, route) in [("before", "older"), ("after", "taker")] {
        let text = groups[0][side].as_str().unwrap_or_default();
        let expected = format!("by HTTPRoute/default/{route}/");
        assert!(text.contains(&expected), "{report:#}");
    }
    assert!(!report.to_string().contains("hidden"), "{report:#}");

    let (_, without_host) = diff(&old, &[]);
    assert_eq!(without_host["unreadable"]["count"], 2, "{without_host:#}");
    let start = ["diff", "--manifests", &old, &new, "--requests"];
    for (file, problem) in [("/dev/null", "a regular file"), (&*old, "a directory")] {
        let refused = agent.command(&[&start[..], &[file]].concat());
        assert_eq!(refused.status.code(), Some(3), "{refused:?}");
        assert!(words(&refused).contains(problem), "{refused:?}");
    }
}
