//! Reads the requests of a HAR document, which browsers export.

use serde::Deserialize;

use super::super::request::{ExplainRequest, ExplainRequestError, HeaderField};
use super::logged::LoggedRequest;

#[derive(Debug, Deserialize)]
struct HarDocument {
    log: HarLog,
}

#[derive(Debug, Deserialize)]
struct HarLog {
    entries: Vec<HarEntry>,
}

#[derive(Debug, Deserialize)]
struct HarEntry {
    request: HarRequest,
}

#[derive(Debug, Deserialize)]
struct HarRequest {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<HarHeader>,
}

#[derive(Debug, Deserialize)]
struct HarHeader {
    name: String,
    value: String,
}

/// Returns one result per entry. Fails if the document is malformed.
pub(super) fn requests(
    document: &[u8],
) -> Result<Vec<Result<LoggedRequest, &'static str>>, serde_json::Error> {
    let document = document.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document);
    let HarDocument { log } = serde_json::from_slice(document)?;
    let entries = log.entries.into_iter();
    Ok(entries.map(|entry| logged(entry.request)).collect())
}

fn logged(request: HarRequest) -> Result<LoggedRequest, &'static str> {
    let HarRequest {
        method,
        url,
        headers,
    } = request;
    let parsed = ExplainRequest::parse(&method, &url, &[] as &[&str], None);
    let parsed = parsed.map_err(|error| match error {
        ExplainRequestError::Url { reason, .. } => reason,
        _ => "the method is not an HTTP method",
    })?;
    let mut authority = parsed.authority;
    let mut fields = Vec::new();
    for HarHeader { name, value } in headers {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "host" => authority = value,
            // Browsers list HTTP/2 pseudo-headers, which repeat the URL.
            _ if name.starts_with(':') => {}
            _ => fields.push(HeaderField { name, value }),
        }
    }
    LoggedRequest {
        method,
        scheme: Some(parsed.scheme),
        authority: Some(authority),
        port: Some(parsed.port),
        target: parsed.path,
        headers: fields,
        server_name: parsed.sni,
        ..LoggedRequest::default()
    }
    .check()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn har_entries_become_requests() {
        let entry = |url: &str, headers: serde_json::Value| {
            json!({"request": {"method": "GET", "url": url, "headers": headers, "cookies": []},
                   "response": {"content": {"text": "x"}}})
        };
        let header = |name: &str, value: &str| json!({"name": name, "value": value});
        let document = json!({"log": {"version": "1.2", "entries": [
            entry("https://a.test/x?y=1", json!([header(":authority", "b.test"), header("Origin", "null")])),
            entry("http://a.test:8080/", json!([header("Host", "c.test")])),
            entry("data:text/plain,x", json!([])),
            entry("wss://a.test/", json!([])),
            entry("http://a.test/", json!([header("x", "a\nb")])),
            entry("http://a.test/", json!([header("host", "a b")])),
        ]}});
        let requests = requests(document.to_string().as_bytes()).unwrap();
        let first = requests[0].as_ref().unwrap();
        assert_eq!(first.authority.as_deref(), Some("a.test"));
        assert_eq!((first.port, first.target.as_str()), (Some(443), "/x?y=1"));
        assert_eq!(first.headers[0].name, "origin");
        let second = requests[1].as_ref().unwrap();
        assert_eq!(
            (second.authority.as_deref(), second.port),
            (Some("c.test"), Some(8080))
        );
        assert!(requests[2..].iter().all(Result::is_err));
    }

    #[test]
    fn malformed_har_documents_are_refused() {
        for document in [
            "",
            "{\"log\":",
            "{\"log\":{}}",
            "{\"log\":{\"entries\":[1]}}",
            "{\"log\":{\"entries\":[{\"request\":{\"method\":\"GET\"}}]}}",
            "{\"log\":{\"entries\":[]}} x",
        ] {
            assert!(requests(document.as_bytes()).is_err(), "{document}");
        }
    }
}
