//! Formats access log lines for people.
//!
//! Clients control some of the content, so control characters must be escaped.

use serde_json::Value;
use sesame_proto::terminal;

pub(super) fn sentence(value: &Value) -> String {
    let text = |name: &str| value.get(name).map(plain);
    let known = |name: &str| text(name).unwrap_or_else(|| "-".to_owned());
    // A custom text format separates columns with tabs.
    if let Value::String(line) = value {
        let columns = line.split('\t').map(|column| plain(&Value::from(column)));
        return columns.collect::<Vec<_>>().join("\t");
    }
    if !value.is_object() {
        return plain(value);
    }
    let mut parts = vec![known("time")];
    match text("method") {
        Some(method) => parts.extend([known("status"), method, known("host") + &known("path")]),
        None => parts.extend([
            format!("{}/{}", known("protocol"), known("port")),
            text("tls_server_name").unwrap_or_default(),
        ]),
    }
    if let Some(time) = text("duration_ms") {
        parts.push(format!("{time}ms{}", stages(value)));
    }
    parts.push(format!(
        "{}B/{}B",
        known("bytes_received"),
        known("bytes_sent")
    ));
    parts.push(format!("from {}", known("client_address")));
    parts.push(format!("by {}", known("route")));
    parts.push(format!(
        "to {} {}",
        known("backend"),
        known("backend_address")
    ));
    for name in ["response_flags", "termination_details", "backend_failure"] {
        if let Some(flag) = text(name).filter(|flag| flag != "-") {
            parts.push(flag);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

fn stages(value: &Value) -> String {
    let known = [
        ("before_backend_ms", "before the backend"),
        ("upload_ms", "upload"),
        ("backend_ms", "backend"),
        ("download_ms", "download"),
    ];
    let stages = known.iter().filter_map(|(field, name)| {
        let time = value.get(field)?.as_u64().filter(|time| *time > 0)?;
        Some(format!("{name} {time}"))
    });
    let stages: Vec<String> = stages.collect();
    match stages.len() {
        0 => String::new(),
        _ => format!(" ({})", stages.join(", ")),
    }
}

/// Escapes control characters, which a terminal would interpret.
pub(in crate::cli) fn plain(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    terminal::plain(&text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::sentence;

    #[test]
    fn a_request_is_a_sentence_without_control_characters() {
        let line = json!({
            "time": "2026-01-02T03:04:05.678Z", "status": 200, "method": "GET", "host": "a.test",
            "path": "/x\u{1b}[2Jy\nz", "duration_ms": 3, "before_backend_ms": 1, "backend_ms": 2, "download_ms": 0, "bytes_received": 0, "bytes_sent": 12,
            "client_address": "192.0.2.1:4711", "route": "HTTPRoute/default/web/rules/0/matches/0",
            "backend": "Service/default/web/80", "backend_address": "10.0.0.1:8080", "response_flags": "-",
        });
        assert_eq!(
            sentence(&line),
            "2026-01-02T03:04:05.678Z 200 GET a.test/x\\u{1b}[2Jy\\nz 3ms (before the backend 1, backend 2) 0B/12B from 192.0.2.1:4711 \
             by HTTPRoute/default/web/rules/0/matches/0 to Service/default/web/80 10.0.0.1:8080"
        );
    }

    #[test]
    fn a_connection_is_a_sentence_too() {
        let line = json!({
            "time": "t", "protocol": "tls", "port": 443, "tls_server_name": "a.test", "duration_ms": 3,
            "bytes_received": 1, "bytes_sent": 2, "client_address": "c", "response_flags": "UF",
            "route": "TLSRoute/default/a/rules/0", "backend": "Service/default/a/443",
        });
        assert_eq!(
            sentence(&line),
            "t tls/443 a.test 3ms 1B/2B from c by TLSRoute/default/a/rules/0 to Service/default/a/443 - UF"
        );
    }
}
