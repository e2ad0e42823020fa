//! Reads an agent's access logs.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, TEST_TIMEOUT};
use sesame_tests::wait::eventually;

const FIELDS: [&str; 41] = [
    "attempts",
    "authorization_us",
    "backend",
    "backend_address",
    "backend_failure",
    "backend_ms",
    "before_backend_ms",
    "bytes_received",
    "bytes_sent",
    "client_address",
    "client_certificate_sha256",
    "client_certificate_subject",
    "connection_id",
    "details",
    "download_ms",
    "duration_ms",
    "gateway",
    "grpc_status",
    "host",
    "listener",
    "listener_authorization_us",
    "method",
    "path",
    "peer_address",
    "port",
    "protocol",
    "refused_by",
    "reported_by",
    "request_id",
    "response_duration_ms",
    "response_flags",
    "route",
    "status",
    "termination_details",
    "time",
    "tls_cipher",
    "tls_server_name",
    "tls_version",
    "traceparent",
    "upload_ms",
    "user_agent",
];

/// Returns the access log files, oldest first.
pub(crate) fn files(agent: &AgentUnderTest) -> Vec<PathBuf> {
    let logs = agent.visible(&agent.state().join("access-logs"));
    let directories = fs::read_dir(logs).into_iter().flatten().flatten();
    let files = directories.flat_map(|gateway| fs::read_dir(gateway.path()).into_iter().flatten());
    let mut files: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    let number = |file: &PathBuf| -> u64 {
        let last = file
            .extension()
            .and_then(|last| last.to_str()?.parse().ok());
        last.unwrap_or(u64::MAX)
    };
    files.sort_by_key(number);
    files
}

/// Skips files that are removed during the call.
pub(crate) fn text(agent: &AgentUnderTest) -> String {
    let texts = files(agent).into_iter().map(fs::read);
    let texts = texts.map(Result::unwrap_or_default);
    texts
        .map(|bytes| String::from_utf8(bytes).expect("UTF-8"))
        .collect()
}

/// Panics unless each line is a JSON object with only known fields.
pub(crate) fn lines(agent: &AgentUnderTest) -> Vec<Value> {
    let text = text(agent);
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let known = BTreeSet::from(FIELDS);
    let parse = |line: &str| {
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let fields = value.as_object().expect("an object");
        let unknown = fields.keys().find(|name| !known.contains(name.as_str()));
        assert_eq!(unknown, None, "{line}");
        value
    };
    whole.lines().map(parse).collect()
}

pub(crate) async fn line(agent: &AgentUnderTest, field: &str, value: &Value) -> Value {
    eventually("a line", TEST_TIMEOUT, async || {
        let lines = lines(agent);
        let found = lines.iter().find(|line| line.get(field) == Some(value));
        found
            .cloned()
            .ok_or_else(|| format!("{field} {value} is not in {lines:#?}\n{}", agent.log_tail()))
    })
    .await
}
