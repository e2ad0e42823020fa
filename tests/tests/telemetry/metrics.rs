//! An agent's metrics must match the test's traffic.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::json;
use sesame_tests::agent::{Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::client::Request;
use sesame_tests::guarded::GuardDirectory;
use sesame_tests::manifests::{
    edge, edge_with_parameters, http_listener, http_route, https_listener, layered, path, rule_to,
    served, yaml,
};
use sesame_tests::ports::free_port;
use sesame_tests::wait::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Returns the head and body of the response.
pub(crate) async fn scrape(address: SocketAddr, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.expect("the address");
    let request = format!(
        "GET /metrics HTTP/1.1\r\nhost: agent\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
    );
    stream
        .write_all(request.as_bytes())
        .await
        .expect("write the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
    (head.to_ascii_lowercase(), body.to_owned())
}

pub(crate) fn values(text: &str) -> BTreeMap<&str, f64> {
    let series = text.lines().filter(|line| !line.starts_with('#'));
    series
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect(line);
            (series, value.parse().expect(line))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_requests_by_port_and_envoy_deaths() {
    let backend = Backend::start("a").await;
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        https_listener("https", 443, "uncovered.test", "tls"),
    ]);
    let authority = Authority::new("Test");
    objects.push(authority.issue(&["a.test"]).secret("tls"));
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &["a.test"], &[rule_to("a", &[])]));
    let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let agent = Setup::with_ports(&[80, 443])
        .flag("--metrics-address")
        .flag(&address.to_string())
        .start(&[("all.yaml", &yaml(&objects))]);
    let good = agent.get(80, "a.test", "/");
    agent.wait_ok(&good).await;
    let unknown = agent.get(80, "other.test", "/");
    agent
        .wait_served(&unknown, |reply| reply.status == 404)
        .await;
    // Envoy starts with the initial configuration, so only this change is applied in steps.
    let other = http_route("other", &["other.test"], &[rule_to("a", &[])]);
    agent.write("other.yaml", &yaml(&[other]));
    agent.wait_ok(&unknown).await;
    let series = |name: &str, more: &str| {
        format!("sesame_{name}{{gateway_namespace=\"default\",gateway=\"edge\"{more}}}")
    };
    let port = ",port=\"80\",protocol=\"http\"";
    // Envoy merges its histograms every five seconds.
    let least = [
        (
            series("gateway_requests_total", &format!("{port},code=\"2xx\"")),
            1.0,
        ),
        (
            series("gateway_requests_total", &format!("{port},code=\"4xx\"")),
            1.0,
        ),
        (series("gateway_request_duration_seconds_count", port), 2.0),
        (series("gateway_connections_total", port), 1.0),
        (series("gateway_sent_bytes_total", port), 1.0),
        (series("gateway_newest", ""), 1.0),
        (
            series("gateway_applies_total", ",outcome=\"accepted\""),
            1.0,
        ),
        (series("gateway_apply_duration_seconds_count", ""), 1.0),
        (
            series("gateway_envoy_processes_total", ",reason=\"start\""),
            1.0,
        ),
        (
            series(
                "gateway_apply_phase_seconds_total",
                ",phase=\"route_tables\",part=\"accept\"",
            ),
            f64::MIN_POSITIVE,
        ),
        (series("gateway_envoy_open_files", ""), 1.0),
        (series("gateway_envoy_open_files_limit", ""), 1.0),
        (series("gateway_envoy_watched_files", ""), 1.0),
        ("sesame_agent_uncovered_hostnames".to_owned(), 1.0),
        ("sesame_agent_open_files".to_owned(), 1.0),
        ("sesame_agent_open_files_limit".to_owned(), 1.0),
        ("sesame_agent_inotify_instances".to_owned(), 1.0),
        ("sesame_agent_inotify_instances_limit".to_owned(), 1.0),
        ("sesame_agent_inotify_instances_held".to_owned(), 1.0),
        ("sesame_agent_inotify_instances_wanted".to_owned(), 1.0),
        ("sesame_agent_ready".to_owned(), 1.0),
    ];
    eventually("all values are high enough", TEST_TIMEOUT, async || {
        let (_, text) = scrape(address, "*/*").await;
        let values = values(&text);
        let short = least.iter().find(|(series, least)| {
            let value = values.get(series.as_str());
            value.is_none_or(|value| value < least)
        });
        short.map_or(Ok(()), |(series, _)| Err(format!("{series} in {text}")))
    })
    .await;
    let (head, open) = scrape(
        address,
        "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
    )
    .await;
    assert!(
        head.contains("content-type: application/openmetrics-text"),
        "{head}"
    );
    assert!(open.ends_with("# EOF\n"), "{open}");
    let (head, plain) = scrape(address, "*/*").await;
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(
        plain.contains("# TYPE sesame_gateway_requests_total counter"),
        "{plain}"
    );
    assert_eq!(agent.kill9_envoy(), 1);
    agent.wait_ok(&good).await;
    let processes = series("gateway_envoy_processes_total", ",reason=\"death\"");
    eventually("the new Envoy is counted", TEST_TIMEOUT, async || {
        let (_, text) = scrape(address, "*/*").await;
        let counted = values(&text).get(processes.as_str()).copied();
        if counted >= Some(1.0) {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
}

/// Each route has its own path.
const ROUTES: u32 = 2_000;
const BACKENDS: u32 = 1_000;
/// Default series limit per Gateway.
const MAX_SERIES: usize = 1_000;

fn requests_by_backend(text: &str) -> BTreeMap<String, f64> {
    let mut all: BTreeMap<String, f64> = BTreeMap::new();
    for (series, value) in values(text) {
        let backend = series
            .strip_prefix("sesame_gateway_backend_requests_total{")
            .and_then(|labels| labels.split_once("backend=\"")?.1.split_once('"'));
        if let Some((backend, _)) = backend {
            *all.entry(backend.to_owned()).or_default() += value;
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_few_series_with_many_routes() {
    let backend = Backend::start("a").await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    for number in 0..BACKENDS {
        objects.extend(served(&format!("s-{number}"), &[backend.address()]));
    }
    for number in 0..ROUTES {
        let at = path("PathPrefix", &format!("/{number}"));
        let rule = rule_to(&format!("s-{}", number % BACKENDS), &[at]);
        objects.push(http_route(&format!("r-{number}"), &["a.test"], &[rule]));
    }
    let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let agent = Setup::with_ports(&[80])
        .flag("--metrics-address")
        .flag(&address.to_string())
        .start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "a.test", "/0")).await;
    let before = scrape(address, "*/*").await.1;
    assert!(values(&before).len() <= MAX_SERIES, "{before}");
    for number in 0..BACKENDS {
        let times = if number < 10 { 5 } else { 1 };
        for _ in 0..times {
            let request = agent.get(80, "a.test", &format!("/{number}"));
            let reply = request.send().await;
            assert_eq!(reply.map(|reply| reply.status).ok(), Some(200), "{number}");
        }
    }
    let sent = f64::from(BACKENDS + 40);
    eventually("every request is counted", TEST_TIMEOUT, async || {
        let (_, text) = scrape(address, "*/*").await;
        let series = values(&text).len();
        assert!(series <= MAX_SERIES, "{series} series");
        let counted = requests_by_backend(&text);
        let sum: f64 = counted.values().sum();
        if sum < sent {
            return Err(format!(
                "counted {sum} of {sent} requests in {series} series"
            ));
        }
        assert_eq!(counted.len(), 41, "{counted:?}");
        assert!(counted["other"] >= sent / 2.0, "{counted:?}");
        for number in 0..10 {
            let own = counted.get(&format!("Service/default/s-{number}/80"));
            assert!(
                own.is_some_and(|count| *count >= 5.0),
                "{number}: {counted:?}"
            );
        }
        Ok(())
    })
    .await;
    let start = std::time::Instant::now();
    let (_, text) = scrape(address, "*/*").await;
    eprintln!(
        "{} series, {} bytes, {:?}",
        values(&text).len(),
        text.len(),
        start.elapsed()
    );
}

const TOKEN: &str = "0123456789abcdef";
const NEXT_TOKEN: &str = "fedcba9876543210";

#[tokio::test(flavor = "multi_thread")]
async fn metrics_guard_requires_certificate_and_token_and_reloads() {
    let files = GuardDirectory::new("agent.test", TOKEN);
    let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let mut setup = Setup::with_ports(&[80])
        .flag("--metrics-address")
        .flag(&address.to_string());
    for (option, file) in files.options() {
        setup = setup.flag(option).flag(&file.to_string_lossy());
    }
    let agent = setup.start(&[("all.yaml", &yaml(&edge(&[])))]);
    let plain = Request::get(address, "agent.test", "/metrics");
    let client = files.clients.issue(&["prometheus.test"]);
    let with = |authority: &Authority, token: &str| {
        plain
            .clone()
            .tls("agent.test", &authority.trust())
            .showing(&client)
            .header("authorization", &format!("Bearer {token}"))
    };
    let status = async |request: Request| request.send().await.ok().map(|reply| reply.status);
    eventually("the metrics", TEST_TIMEOUT, async || {
        match status(with(&files.servers, TOKEN)).await {
            Some(200) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(status(with(&files.servers, NEXT_TOKEN)).await, Some(401));
    let without_token = plain
        .clone()
        .tls("agent.test", &files.servers.trust())
        .showing(&client);
    assert_eq!(status(without_token).await, Some(401));
    let token = format!("Bearer {TOKEN}");
    let without_certificate = plain
        .clone()
        .tls("agent.test", &files.servers.trust())
        .header("authorization", &token);
    assert_eq!(status(without_certificate).await, None);
    assert_eq!(
        status(plain.clone().header("authorization", &token)).await,
        None
    );
    // Damaged files must neither admit new clients nor lock out existing clients.
    files.put("tls.crt", "-----BEGIN CERTIFICATE-----\n");
    files.remove("token");
    assert_eq!(status(with(&files.servers, NEXT_TOKEN)).await, Some(401));
    assert_eq!(status(with(&files.servers, TOKEN)).await, Some(200));
    let next = Authority::new("next servers");
    let server = next.issue(&["agent.test"]);
    files.put("tls.key", &server.key_pem);
    files.put("tls.crt", &server.certificate_pem);
    files.put("token", NEXT_TOKEN);
    assert_eq!(status(with(&next, NEXT_TOKEN)).await, Some(200));
    assert_eq!(status(with(&next, TOKEN)).await, Some(401));
    assert!(!agent.log().contains(TOKEN) && !agent.log().contains(NEXT_TOKEN));
}

#[tokio::test(flavor = "multi_thread")]
async fn route_requests_are_counted_if_configured() {
    let backend = Backend::start("a").await;
    let routes = json!([
        {"kind": "HTTPRoute", "namespace": "default", "name": "asked.for"},
        {"kind": "HTTPRoute", "namespace": "default", "name": "not-there"},
        {"kind": "HTTPProxy", "namespace": "default", "name": "asked.for"},
        {"kind": "Ingress", "namespace": "default", "name": "asked.for"},
    ]);
    let mut objects = edge_with_parameters(&json!({"metrics": {"routes": routes}}));
    objects.extend(served("a", &[backend.address()]));
    let hosts = ["a.test", "a.shop.test"];
    objects.push(http_route("asked.for", &hosts, &[rule_to("a", &[])]));
    objects.push(http_route("other", &["b.test"], &[rule_to("a", &[])]));
    objects.extend(layered("asked.for", "a"));
    let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let agent = Setup::with_ports(&[80])
        .flag("--metrics-address")
        .flag(&address.to_string())
        .start(&[("all.yaml", &yaml(&objects))]);
    for host in [
        "a.test",
        "a.shop.test",
        "b.test",
        "proxy.test",
        "ingress.test",
    ] {
        agent.wait_ok(&agent.get(80, host, "/")).await;
    }
    let of_gateway = "gateway_namespace=\"default\",gateway=\"edge\",route=";
    let of_kind = |kind: &str| format!("{of_gateway}\"{kind}/default/asked.for\"");
    let requests_to = |kind: &str| {
        let labels = of_kind(kind);
        format!("sesame_gateway_route_requests_total{{{labels},code=\"2xx\"}}")
    };
    let labels = of_kind("HTTPRoute");
    let answered = format!("sesame_gateway_route_requests_total{{{labels},code=\"2xx\"}}");
    let failed = format!("sesame_gateway_route_requests_total{{{labels},code=\"5xx\"}}");
    let durations = format!("sesame_gateway_route_backend_duration_seconds_count{{{labels}}}");
    // The route's two virtual hosts are counted together.
    eventually(
        "only the configured route is counted",
        TEST_TIMEOUT,
        async || {
            let (_, text) = scrape(address, "*/*").await;
            let values = values(&text);
            let value = |series: &String| values.get(series.as_str()).copied();
            let is_route_series =
                |line: &&str| line.starts_with("sesame_gateway_route_requests_total{");
            let is_counted = value(&answered) >= Some(2.0)
                && value(&durations) >= Some(2.0)
                && value(&failed) == Some(0.0)
                && value(&requests_to("HTTPProxy")) >= Some(1.0)
                && value(&requests_to("Ingress")) >= Some(1.0)
                && text.lines().filter(is_route_series).count() == 15;
            if is_counted { Ok(()) } else { Err(text) }
        },
    )
    .await;
}
