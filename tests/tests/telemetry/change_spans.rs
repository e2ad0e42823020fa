//! Spans for each step of a configuration change. Changes never wait for the collector.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use sesame_files::directory;
use sesame_resolver::ResolvedGateway;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::collecting::{Collecting, Span};
use sesame_tests::controller::publication;
use sesame_tests::followed::followed_with;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, edge_name, http_listener, plain_route, served, yaml};
use sesame_tests::network;
use sesame_tests::publications::one;
use sesame_tests::wait::{eventually, holds};

const GATEWAY: &str = "default/edge";
const ROUTE: &str = "HTTPRoute/default/app";

fn endpoint(collecting: &Collecting) -> String {
    format!("--spans-endpoint=http://{}", collecting.address())
}

/// Waits for the trace of the change whose revision starts with `revision`.
async fn trace_of(
    collecting: &Collecting,
    object: &str,
    revision: &str,
    names: &[&str],
) -> Vec<Span> {
    collecting
        .wait_trace(&format!("all of {names:?}"), |spans| {
            let root = spans.iter().find(|span| span.name == "change");
            let matches_object = root.is_some_and(|root| {
                root.attribute("sesame.object") == Some(object)
                    && root.attribute("sesame.changes") == Some("1")
                    && root
                        .attribute("sesame.revision")
                        .is_some_and(|value| value.starts_with(revision))
            });
            let has = |name: &&str| spans.iter().any(|span| span.name == **name);
            matches_object && names.iter().all(has)
        })
        .await
}

fn named<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    match (found.next(), found.next()) {
        (Some(span), None) => span,
        _ => panic!("expected exactly one span {name}: {spans:#?}"),
    }
}

/// Spans must start in order, end after their start, and have existing parents.
fn check_order(checks: &mut Checks, spans: &[Span], names: &[&str]) {
    let mut before = named(spans, names[0]);
    for name in names {
        let span = named(spans, name);
        let label = format!("{name} begins after {}", before.name);
        checks.that(span.time.0 >= before.time.0, label);
        before = span;
    }
    let root = named(spans, "change");
    for span in spans {
        let is_below = spans.iter().any(|other| other.id == span.parent);
        let is_root = span.id == root.id && span.parent.is_empty();
        checks.that(is_below || is_root, format!("{} has a parent", span.name));
        checks.that(
            span.time.1 >= span.time.0,
            format!("{} ends after it starts", span.name),
        );
        checks.same("Gateway", span.attribute("sesame.gateway"), Some(GATEWAY));
        let revision = root.attribute("sesame.revision");
        checks.same("revision", span.attribute("sesame.revision"), revision);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn change_trace_spans_controller_watch_to_host_report() {
    if !network::inside_own("change_trace_spans_controller_watch_to_host_report") {
        return;
    }
    let collecting = Collecting::start().await;
    let spans_to = endpoint(&collecting);
    let (cluster, _controller, agent) = followed_with(&[80], &[&spans_to], &[&spans_to]).await;
    let at = (network::BACKENDS, 0).into();
    let a = Backend::start_at("a", at).await.expect("an address");
    let b = Backend::start_at("b", at).await.expect("an address");
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("a", &[a.address()]));
    objects.extend(served("b", &[b.address()]));
    objects.push(plain_route("app", "path.test", "a"));
    cluster.apply_all(&objects).await;
    let request = agent.get(80, "path.test", "/");
    agent.wait_backend(&request, "a").await;

    cluster
        .apply_all(&[plain_route("app", "path.test", "b")])
        .await;
    agent.wait_backend(&request, "b").await;
    let published = publication(cluster.admin(), &edge_name()).await;
    let revision = published.expect("a publication").manifest.revision;
    let steps = [
        "changed",
        "resolve",
        "publish",
        "write parts",
        "write manifest",
        "host",
        "receive",
        "render",
        "wait",
        "apply",
        "report",
    ];
    let spans = trace_of(&collecting, ROUTE, &revision, &steps).await;
    let mut checks = Checks::default();
    // The host may receive the manifest before the controller's write is confirmed.
    check_order(&mut checks, &spans, &steps[..5]);
    check_order(&mut checks, &spans, &steps[5..]);
    let parts = named(&spans, "write parts");
    checks.that(
        named(&spans, "host").time.0 >= parts.time.1,
        "the host sees the manifest after the parts are written",
    );
    checks.same(
        "object",
        named(&spans, "changed").attribute("sesame.object"),
        Some(ROUTE),
    );
    let apply = named(&spans, "apply");
    checks.same(
        "outcome",
        apply.attribute("sesame.outcome"),
        Some("accepted"),
    );
    check_steps(&mut checks, &spans, apply);
    for (name, service) in [("publish", "sesame-controller"), ("apply", "sesame-agent")] {
        checks.same(name, named(&spans, name).service.as_str(), service);
    }
    checks.finish();
}

/// Each verification must start exactly when its write ends.
fn check_steps(checks: &mut Checks, spans: &[Span], apply: &Span) {
    let steps: Vec<&Span> = spans
        .iter()
        .filter(|span| span.parent == apply.id)
        .collect();
    checks.that(!steps.is_empty(), "the apply span has child spans");
    for write in steps.iter().filter(|span| span.name.starts_with("write ")) {
        let verify = write.name.replace("write ", "verify ");
        let verify = named(spans, &verify);
        checks.same("verified when written", verify.time.0, write.time.1);
    }
}

fn host_objects(backend: &Backend) -> Vec<Value> {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend.address()]));
    objects
}

fn route(prefix: &str) -> Value {
    let mut route = plain_route("app", "app.test", "app");
    route["spec"]["rules"][0]["matches"] =
        json!([{"path": {"type": "PathPrefix", "value": prefix}}]);
    route
}

fn with_route(agent: &AgentUnderTest, prefix: &str) {
    agent.write("route.yaml", &yaml(&[route(prefix)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn host_with_manifests_has_its_own_trace() {
    let backend = Backend::start("app").await;
    let collecting = Collecting::start().await;
    let agent = Setup::with_ports(&[80])
        .flag(&endpoint(&collecting))
        .start(&[("all.yaml", &yaml(&host_objects(&backend)))]);
    with_route(&agent, "/one");
    agent.wait_ok(&agent.get(80, "app.test", "/one")).await;
    with_route(&agent, "/two");
    agent.wait_ok(&agent.get(80, "app.test", "/two")).await;
    let steps = ["changed", "resolve", "render", "wait", "apply"];
    let spans = trace_of(&collecting, ROUTE, "", &steps).await;
    let mut checks = Checks::default();
    check_order(&mut checks, &spans, &steps);
    check_steps(&mut checks, &spans, named(&spans, "apply"));
    checks.finish();
}

fn snapshot(backend: &Backend, prefix: &str) -> ResolvedGateway {
    let mut objects = host_objects(backend);
    objects.push(route(prefix));
    one(&objects)
}

#[tokio::test(flavor = "multi_thread")]
async fn host_with_snapshots_traces_each_revision() {
    let backend = Backend::start("app").await;
    let collecting = Collecting::start().await;
    let root = tempfile::tempdir().expect("a directory");
    let write = |prefix: &str| {
        let snapshot = snapshot(&backend, prefix).snapshot;
        let written = directory::write(&root.path().join("edge"), &snapshot);
        written.expect("a snapshot directory");
    };
    write("/one");
    let mut agent = Setup::with_ports(&[80]).without_manifests().prepare();
    let snapshots = root.path().to_string_lossy();
    agent.add_flags(&["--snapshot-dir", &snapshots, &endpoint(&collecting)]);
    agent.restart();
    agent.wait_ok(&agent.get(80, "app.test", "/one")).await;
    write("/two");
    agent.wait_ok(&agent.get(80, "app.test", "/two")).await;
    let served = agent.wait_healthy().await["gateways"][0]["appliedRevision"].clone();
    let served = served.as_str().expect("a revision");
    let steps = ["receive", "render", "wait", "apply"];
    let spans = collecting
        .wait_trace("all spans of a host with snapshots", |spans| {
            let is_root = |span: &Span| {
                let revision = span.attribute("sesame.revision").unwrap_or_default();
                span.name == "change" && revision.starts_with(served)
            };
            let has = |name: &&str| spans.iter().any(|span| span.name == **name);
            spans.iter().any(is_root) && steps.iter().all(has)
        })
        .await;
    let mut checks = Checks::default();
    check_order(&mut checks, &spans, &steps);
    check_steps(&mut checks, &spans, named(&spans, "apply"));
    checks.finish();
}

fn over_tls(collecting: &Collecting, directory: &Path, authority: &Authority) -> AgentUnderTest {
    let ca = directory.join("ca.pem");
    std::fs::write(&ca, authority.pem()).expect("written");
    let headers = directory.join("headers");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&headers);
    let line = b"authorization: Bearer of-the-collector\n";
    std::io::Write::write_all(&mut file.expect("a file"), line).expect("written");
    Setup::with_ports(&[80])
        .flag(&format!(
            "--spans-endpoint=https://localhost:{}",
            collecting.address().port()
        ))
        .flag(&format!("--spans-ca={}", ca.display()))
        .flag(&format!("--spans-headers-file={}", headers.display()))
        .prepare()
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_and_token_go_only_to_trusted_collector() {
    let backend = Backend::start("app").await;
    let directory = tempfile::tempdir().expect("a directory");
    let (ours, another) = (Authority::new("ours"), Authority::new("another"));
    let collecting = Collecting::start_tls(ours.issue(&["localhost"]).acceptor()).await;
    for (authority, is_trusted) in [(&another, false), (&ours, true)] {
        let mut agent = over_tls(&collecting, directory.path(), authority);
        agent.write("all.yaml", &yaml(&host_objects(&backend)));
        agent.restart();
        for prefix in ["/one", "/two"] {
            with_route(&agent, prefix);
            agent.wait_ok(&agent.get(80, "app.test", prefix)).await;
        }
        if is_trusted {
            let spans = collecting.wait_trace("any spans", |_| true).await;
            let key = spans[0].header("authorization");
            assert_eq!(key, Some("Bearer of-the-collector"));
        } else {
            eventually("the log states the reason", TEST_TIMEOUT, async || {
                let log = agent.log();
                let is_logged = log.contains("spans cannot be sent to the collector")
                    && log.contains("UnknownIssuer");
                holds(is_logged, || log)
            })
            .await;
            assert!(collecting.spans().is_empty());
        }
        assert!(!agent.log().contains("of-the-collector"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_collector_delays_no_change_or_request() {
    let backend = Backend::start("app").await;
    let collecting = Collecting::start().await;
    let mut objects = host_objects(&backend);
    objects.push(plain_route("all", "all.test", "app"));
    let agent = Setup::with_ports(&[80])
        .flag(&endpoint(&collecting))
        .start(&[("all.yaml", &yaml(&objects))]);
    let request = agent.get(80, "all.test", "/");
    agent.wait_ok(&request).await;
    with_route(&agent, "/first");
    collecting.wait_trace("any spans", |_| true).await;
    let address: SocketAddr = collecting.address();
    let load = Load::start(&Plan::new(vec![request]));
    drop(collecting);
    for number in 0..10 {
        let prefix = format!("/away-{number}");
        with_route(&agent, &prefix);
        agent.wait_ok(&agent.get(80, "app.test", &prefix)).await;
    }
    // This collector accepts connections but never responds.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, address.port()));
    let silent = silent.expect("the port is free again");
    for number in 0..10 {
        let prefix = format!("/silent-{number}");
        with_route(&agent, &prefix);
        agent.wait_ok(&agent.get(80, "app.test", &prefix)).await;
    }
    drop(silent);
    let report = load.stop().await;
    report.print("collector down, then unresponsive");
    report.assert_clean();
}
