//! The metrics of an agent, as Prometheus reads them, beside the traffic that they count.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use sesame_tests::agent::{SOON, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::manifests::{edge, http_listener, http_route, rule_to, served, yaml};
use sesame_tests::ports::free_port;
use sesame_tests::wait::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Sends `GET /metrics` and returns the head and the body of the answer.
async fn scrape(address: SocketAddr, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.expect("the address");
    let request = format!(
        "GET /metrics HTTP/1.1\r\nhost: agent\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
    (head.to_ascii_lowercase(), body.to_owned())
}

/// Returns the values by series.
fn values(text: &str) -> BTreeMap<&str, f64> {
    let series = text.lines().filter(|line| !line.starts_with('#'));
    series
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect(line);
            (series, value.parse().expect(line))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_get_is_counted_by_port_and_envoys_that_die_are_counted_too() {
    let backend = Backend::start("a").await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &["a.test"], &[rule_to("a", &[])]));
    let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let agent = Setup::with_ports(&[80])
        .flag("--metrics-address")
        .flag(&address.to_string())
        .start(&[("all.yaml", &yaml(&objects))]);
    let good = agent.get(80, "a.test", "/");
    agent.wait_ok(&good).await;
    let unknown = agent.get(80, "other.test", "/");
    agent
        .wait_served(&unknown, |reply| reply.status == 404)
        .await;
    let of = |name: &str, more: &str| {
        format!("sesame_{name}{{gateway_namespace=\"default\",gateway=\"edge\"{more}}}")
    };
    let port = ",port=\"80\",protocol=\"http\"";
    // Envoy puts durations together every five seconds.
    let least = [
        (
            of("gateway_requests_total", &format!("{port},code=\"2xx\"")),
            1.0,
        ),
        (
            of("gateway_requests_total", &format!("{port},code=\"4xx\"")),
            1.0,
        ),
        (of("gateway_request_duration_seconds_count", port), 2.0),
        (of("gateway_connections_total", port), 1.0),
        (of("gateway_sent_bytes_total", port), 1.0),
        (of("gateway_newest", ""), 1.0),
        (of("gateway_applies_total", ",outcome=\"accepted\""), 1.0),
        (of("gateway_apply_duration_seconds_count", ""), 1.0),
        (of("gateway_envoy_processes_total", ""), 1.0),
        ("sesame_agent_ready".to_owned(), 1.0),
    ];
    eventually("every one of the values", SOON, async || {
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
    let processes = of("gateway_envoy_processes_total", "");
    eventually("the next Envoy is counted", SOON, async || {
        let (_, text) = scrape(address, "*/*").await;
        let counted = values(&text).get(processes.as_str()).copied();
        if counted >= Some(2.0) {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
}
