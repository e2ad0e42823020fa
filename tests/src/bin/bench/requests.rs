//! Envoy's CPU cost per request: without access logs, and with each kind of access log.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use sesame_tests::collecting::Collecting;

use super::client::Client;
use super::host::Host;

/// Number of requests per round, sent sequentially.
const REQUESTS: u32 = 10_000;
/// Rounds alternate between the kinds of access log. Only the cheapest round counts, because other
/// processes can only add cost.
const ROUNDS: usize = 8;

/// In microseconds of CPU time.
#[derive(Debug, Default, Serialize)]
pub(crate) struct RequestCost {
    pub(crate) logged: f64,
    pub(crate) unlogged: f64,
    pub(crate) as_text: f64,
    pub(crate) by_otlp: f64,
    pub(crate) by_als: f64,
}

pub(crate) fn measure(host: &mut Host, hostname: &str) -> anyhow::Result<RequestCost> {
    let runtime = tokio::runtime::Runtime::new()?;
    let collecting = runtime.block_on(Collecting::start());
    let fields = json!([
        "time",
        "gateway",
        "route",
        "backend",
        "method",
        "host",
        "path",
        "status",
        "duration_ms",
        "client_address"
    ]);
    let text = json!({"format": {"type": "Text", "fields": fields}});
    let sent = |protocol: &str, queries: Option<&str>| {
        let sink = json!({"backendRef": {"name": "collector", "port": 80}, "protocol": protocol, "queries": queries});
        json!({"onHost": false, "sinks": [sink]})
    };
    let [none, otlp, als] = [
        json!({}),
        sent("OTLP", None),
        sent("EnvoyALS", Some("Included")),
    ];
    let kinds = [
        ("--access-log=off", &none),
        ("--access-log=file", &none),
        ("--access-log=file", &text),
        ("--access-log=file", &otlp),
        ("--access-log=file", &als),
    ];
    let mut least = [f64::INFINITY; 5];
    for _ in 0..ROUNDS {
        for ((flag, access_log), least) in kinds.iter().zip(&mut least) {
            let collector = collecting.address();
            host.manifests().write_access_log(access_log, collector)?;
            *least = least.min(cost(host, hostname, flag)?);
        }
    }
    let sent = collecting.records();
    let has_come = |end: &str| {
        let is_of_it = |path: &str| path.ends_with(end);
        sent.iter()
            .any(|it| it.header(":path").is_some_and(is_of_it))
    };
    for end in ["LogsService/Export", "/StreamAccessLogs"] {
        anyhow::ensure!(has_come(end), "no access log entry reached {end}");
    }
    let [unlogged, logged, as_text, by_otlp, by_als] = least;
    Ok(RequestCost {
        logged,
        unlogged,
        as_text,
        by_otlp,
        by_als,
    })
}

fn cost(host: &mut Host, hostname: &str, flag: &str) -> anyhow::Result<f64> {
    host.kill_all()?;
    host.forget_runtime()?;
    host.start_with(&[flag])?;
    let mut client = Client::new(host.address());
    let mut ask = |within: u64| {
        client.wait_for(hostname, Duration::from_secs(within), |answer| {
            answer.status == 200
        })
    };
    ask(120)?;
    host.wait_serving(Duration::from_secs(60))?;
    let before = host.envoy_cpu_seconds()?;
    for _ in 0..REQUESTS {
        ask(10)?;
    }
    let took = host.envoy_cpu_seconds()? - before;
    Ok(took / f64::from(REQUESTS) * 1e6)
}
