//! Lines of JSON logs: Sesame's own, Contour's, Envoy Gateway's and Traefik's.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::request::UrlScheme;
use super::lines::LoggedEntry;
use super::logged::{LoggedRequest, address};

/// Sesame's log truncates longer paths.
const MAX_LOGGED_PATH_BYTES: usize = 1024;
const TRAEFIK: &str = "\"RequestMethod\":";
const NOT_JSON: &str = "the line is not a complete JSON object";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SesameLine {
    method: Option<String>,
    host: Option<String>,
    /// The host in the JSON logs of Contour and Envoy Gateway.
    #[serde(alias = ":authority")]
    authority: Option<String>,
    #[serde(alias = "x-envoy-origin-path")]
    path: Option<String>,
    port: Option<u16>,
    protocol: Option<String>,
    gateway: Option<String>,
    route: Option<String>,
    listener: Option<IgnoredAny>,
    grpc_status: Option<IgnoredAny>,
    tls_version: Option<IgnoredAny>,
    #[serde(alias = "requested_server_name")]
    tls_server_name: Option<String>,
    client_certificate_sha256: Option<IgnoredAny>,
    client_certificate_subject: Option<IgnoredAny>,
    client_address: Option<String>,
    #[serde(alias = "user-agent")]
    user_agent: Option<String>,
}

/// Reads a line of a JSON log. Returns `None` for a TCP or TLS connection or a UDP session.
pub(super) fn read(line: &str) -> LoggedEntry {
    // A JSON string cannot contain this text, because its quotes are escaped.
    if line.contains(TRAEFIK) {
        traefik(line).map(Some)
    } else {
        sesame(line)
    }
}

/// Reads a line of Sesame's log, or of a similar one.
fn sesame(line: &str) -> LoggedEntry {
    let line: SesameLine = serde_json::from_str(line).map_err(|_| NOT_JSON)?;
    let SesameLine {
        method,
        host,
        authority,
        path,
        port,
        protocol,
        gateway,
        route,
        listener,
        grpc_status,
        tls_version,
        tls_server_name,
        client_certificate_sha256,
        client_certificate_subject,
        client_address,
        user_agent,
    } = line;
    let (Some(method), Some(target)) = (method, path) else {
        let http = protocol.is_some_and(|it| it.starts_with("HTTP"));
        return if http || port.is_none() {
            Err("the line has no method or no path")
        } else {
            Ok(None)
        };
    };
    if target.len() >= MAX_LOGGED_PATH_BYTES {
        return Err("the log truncated the path");
    }
    // Envoy's logs contain `-` for an empty value.
    let server_name = tls_server_name.filter(|it| !it.is_empty() && it != "-");
    // Lines for plain HTTP have no listener.
    let tls = listener.is_some() || tls_version.is_some() || server_name.is_some();
    let scheme = match (tls, port) {
        (true, _) => Some(UrlScheme::Https),
        (false, Some(_)) => Some(UrlScheme::Http),
        (false, None) => None,
    };
    let without_query = !target.contains('?');
    let mut request = LoggedRequest {
        method,
        scheme,
        authority: host.or(authority),
        port,
        target,
        headers: Vec::new(),
        server_name,
        client: client_address.as_deref().and_then(address),
        client_certificate: client_certificate_sha256.is_some()
            || client_certificate_subject.is_some(),
        gateway,
        route,
        without_query,
    };
    request.add_header("user-agent", user_agent.as_deref());
    let grpc = grpc_status.map(|_| "application/grpc");
    request.add_header("content-type", grpc);
    request.check().map(Some)
}

/// A line of Traefik's log, whose unknown values are `-`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct TraefikLine {
    request_method: String,
    request_host: String,
    request_port: String,
    request_path: String,
    request_scheme: String,
    client_host: String,
    #[serde(rename = "request_User-Agent")]
    user_agent: Option<String>,
}

fn traefik(line: &str) -> Result<LoggedRequest, &'static str> {
    let line: TraefikLine = serde_json::from_str(line).map_err(|_| NOT_JSON)?;
    let TraefikLine {
        request_method,
        request_host,
        request_port,
        request_path,
        request_scheme,
        client_host,
        user_agent,
    } = line;
    let scheme = match request_scheme.as_str() {
        "https" | "wss" => Some(UrlScheme::Https),
        "http" | "ws" => Some(UrlScheme::Http),
        _ => None,
    };
    let is_known = |text: &String| !text.is_empty() && text != "-";
    // The port of the Host header, which is not necessarily the listener's.
    let port = Some(request_port).filter(is_known);
    let authority = Some(request_host).filter(is_known).map(|host| match port {
        Some(port) => format!("{host}:{port}"),
        None => host,
    });
    let mut request = LoggedRequest {
        method: request_method,
        scheme,
        authority,
        target: request_path,
        client: address(&client_host),
        ..LoggedRequest::default()
    };
    request.add_header("user-agent", user_agent.as_deref());
    request.check()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const LINE: &str = r#"{"client_address":"203.0.113.9:50412","gateway":"Gateway/shop/edge","host":"shop.example.com",
        "listener":"Gateway/shop/edge/listeners/https","method":"GET","path":"/cart","port":443,"protocol":"HTTP/2",
        "tls_server_name":"shop.example.com","tls_version":"TLSv1.3","user_agent":"curl/8.5.0","grpc_status":0}"#;

    #[test]
    fn sesame_line_has_every_part() {
        let request = sesame(LINE).unwrap().unwrap();
        assert_eq!(request.scheme, Some(UrlScheme::Https));
        assert_eq!(request.authority.as_deref(), Some("shop.example.com"));
        assert_eq!(
            (request.port, request.target.as_str()),
            (Some(443), "/cart")
        );
        assert_eq!(request.client, Some(IpAddr::from([203, 0, 113, 9])));
        let names: Vec<&str> = request.headers.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["user-agent", "content-type"]);
        assert!(request.without_query && !request.client_certificate);
        let plain = r#"{"method":"GET","path":"/","port":80,"protocol":"HTTP/1.1"}"#;
        let plain = sesame(plain).unwrap().unwrap();
        assert_eq!(
            (plain.scheme, plain.authority),
            (Some(UrlScheme::Http), None)
        );
    }

    #[test]
    fn hosts_of_similar_json_logs_are_read() {
        for line in [
            r#"{"authority":"a.test","method":"GET","path":"/x?y=1","protocol":"HTTP/1.1"}"#,
            r#"{":authority":"a.test","method":"GET","x-envoy-origin-path":"/x?y=1","user-agent":"curl"}"#,
        ] {
            let request = sesame(line).unwrap().unwrap();
            assert_eq!(request.authority.as_deref(), Some("a.test"), "{line}");
            assert_eq!(request.target, "/x?y=1");
            assert!(!request.without_query);
        }
    }

    #[test]
    fn server_name_of_contour_line_means_tls() {
        let scheme = |name: &str| {
            let line = format!(
                r#"{{"authority":"a.test","method":"GET","path":"/","requested_server_name":{name}}}"#
            );
            read(&line).unwrap().unwrap().scheme
        };
        let tls = Some(UrlScheme::Https);
        assert_eq!(
            ["\"a.test\"", "\"-\"", "\"\"", "null"].map(scheme),
            [tls, None, None, None]
        );
    }

    #[test]
    fn traefik_line_has_scheme_host_and_port() {
        let line = r#"{"ClientAddr":"192.0.2.1:50412","ClientHost":"192.0.2.1","DownstreamStatus":200,
            "RequestAddr":"a.test:8443","RequestHost":"a.test","RequestMethod":"GET","RequestPath":"/x?y=1",
            "RequestPort":"8443","RequestProtocol":"HTTP/2.0","RequestScheme":"https","RouterName":"shop@docker",
            "request_User-Agent":"curl","time":"2026-01-02T03:04:05Z"}"#;
        let request = read(line).unwrap().unwrap();
        assert_eq!(request.authority.as_deref(), Some("a.test:8443"));
        assert_eq!(
            (request.scheme, request.target.as_str()),
            (Some(UrlScheme::Https), "/x?y=1")
        );
        assert_eq!(request.client, Some(IpAddr::from([192, 0, 2, 1])));
        assert_eq!(request.headers[0].value, "curl");
        let plain = line.replace("8443\",", "-\",").replace("https", "http");
        assert_eq!(
            read(&plain).unwrap().unwrap().authority.as_deref(),
            Some("a.test")
        );
        for bad in [
            line.replace("/x?", "x?"),
            line.replace("GET", ""),
            line.replace("\"/x?y=1\"", "1"),
            r#"{"RequestMethod":"GET"}"#.to_owned(),
        ] {
            assert!(read(&bad).is_err(), "{bad}");
        }
        let forged = r#"{"method":"GET","path":"/","user_agent":"\"RequestMethod\":"}"#;
        assert_eq!(read(forged).unwrap().unwrap().target, "/");
    }

    #[test]
    fn sesame_connection_is_not_a_request() {
        let line = r#"{"port":5432,"protocol":"TCP","listener":"Gateway/a/b/listeners/tcp"}"#;
        assert_eq!(sesame(line), Ok(None));
    }

    #[test]
    fn hostile_sesame_lines_are_unreadable() {
        let long = format!(
            r#"{{"method":"GET","path":"/{}","port":80}}"#,
            "a".repeat(1023)
        );
        for line in [
            "{",
            "{}",
            "{\"method\":\"GET\"",
            r#"{"method":1,"path":"/"}"#,
            r#"{"method":"GET","path":"/","port":0}"#,
            r#"{"method":"GET","path":"/","port":65536}"#,
            r#"{"method":"GET","path":"x"}"#,
            r#"{"method":"GET","path":"/a b"}"#,
            r#"{"method":"GET","path":"/\u001b[2J"}"#,
            r#"{"method":"GET","path":"/é"}"#,
            r#"{"method":"GET","path":"/","host":"a\nb"}"#,
            r#"{"method":"GET","path":"/","host":""}"#,
            r#"{"method":"GET","path":"/","host":"a/b"}"#,
            r#"{"method":"G T","path":"/"}"#,
            r#"{"method":"GET","path":"/","user_agent":"a\nb"}"#,
            r#"{"method":"GET","path":"/","gateway":"a\nb"}"#,
            r#"{"method":"GET","path":"/","tls_server_name":"\u007f"}"#,
            r#"{"method":"","path":"/"}"#,
            r#"{"method":"GET","method":"PUT","path":"/"}"#,
            r#"{"port":80,"protocol":"HTTP/1.1"}"#,
            &long,
        ] {
            assert!(sesame(line).is_err(), "{line}");
        }
        let nested = "[".repeat(10_000);
        assert!(sesame(&format!("{{\"x\":{nested}")).is_err());
    }
}
