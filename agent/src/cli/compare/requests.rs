//! Reads a log, and selects the requests to send.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, ensure};
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{HeaderMap, Method};
use serde::Serialize;
use sesame_explain::{LogReader, LoggedRequest, UnreadableLines, UrlScheme};
use sesame_files::open::{self, Rule};
use sesame_proto::field_names;

use super::secrets;

const SAFE: [Method; 3] = [Method::GET, Method::HEAD, Method::OPTIONS];
/// A request to send to both gateways.
#[derive(Clone, Debug)]
pub(super) struct SentRequest {
    pub(super) method: Method,
    pub(super) authority: String,
    pub(super) target: PathAndQuery,
    pub(super) headers: HeaderMap,
    /// Server name, or the host if the log has none.
    pub(super) server_name: String,
}

/// Logged requests that are not sent as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeftOut {
    /// Requests without their headers that may be secret.
    pub(super) secret_headers: u64,
    /// Requests without their query parameters that may be secret.
    pub(super) secret_parameters: u64,
    /// Requests with an unsafe method, or that replace their method by a header or parameter.
    pub(super) unsafe_methods: u64,
    /// Requests whose logged scheme differs from the old URL's.
    pub(super) other_scheme: u64,
    /// Requests beyond the limit. Some may be equal.
    pub(super) beyond_limit: u64,
    /// Unreadable lines.
    pub(super) unreadable: UnreadableLines,
}

#[derive(Debug)]
pub(super) struct RequestSelection<'a> {
    pub(super) default_host: &'a str,
    pub(super) scheme: UrlScheme,
    pub(super) all_methods: bool,
    pub(super) limit: usize,
}

impl RequestSelection<'_> {
    /// Returns different requests, in the order of the log.
    pub(super) fn read(&self, log: &Path) -> anyhow::Result<(Vec<SentRequest>, LeftOut)> {
        let mut requests = Vec::new();
        let mut known = BTreeSet::new();
        let mut left_out = LeftOut::default();
        let mut read = 0_u64;
        let mut take = |line: u64, logged: Result<LoggedRequest, &'static str>| {
            match logged.and_then(|it| self.select(it, &mut left_out)) {
                Err(reason) => left_out.unreadable.record(line, reason),
                Ok(selected) => {
                    read += 1;
                    if let Some((key, request)) = selected.filter(|it| !known.contains(&it.0)) {
                        if requests.len() < self.limit {
                            known.insert(key);
                            requests.push(request);
                        } else {
                            left_out.beyond_limit += 1;
                        }
                    }
                }
            }
            Ok::<(), anyhow::Error>(())
        };
        let mut reader = LogReader::default();
        open::stream(log, Rule::GivenByLink, |bytes| {
            reader.push(bytes, &mut take)
        })?;
        reader.finish(&mut take)?;
        let unreadable = &left_out.unreadable;
        ensure!(
            read > 0 || unreadable.count > 0,
            "the log contains no request"
        );
        ensure!(
            read >= unreadable.count,
            "most of the log cannot be read: {unreadable}; remove these lines, or convert the log"
        );
        Ok((requests, left_out))
    }

    /// Returns `None` for a request that must not be sent, and otherwise also a text that only
    /// equal requests share.
    fn select(
        &self,
        logged: LoggedRequest,
        left_out: &mut LeftOut,
    ) -> Result<Option<(String, SentRequest)>, &'static str> {
        let LoggedRequest {
            method,
            scheme,
            authority,
            mut target,
            headers,
            server_name,
            ..
        } = logged;
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| "invalid method")?;
        let is_tunnel = method == Method::CONNECT || method == Method::TRACE;
        // The log does not show which method an application then assumes.
        let names = headers.iter().map(|it| it.name.as_str());
        let is_refused = is_tunnel || secrets::overrides_method(names, &target);
        if is_refused || !(self.all_methods || SAFE.contains(&method)) {
            left_out.unsafe_methods += 1;
            return Ok(None);
        }
        if scheme.is_some_and(|it| it != self.scheme) {
            left_out.other_scheme += 1;
            return Ok(None);
        }
        left_out.secret_parameters += u64::from(secrets::remove_parameters(&mut target));
        let mut sent = HeaderMap::new();
        let mut has_secret = false;
        for field in headers {
            let (name, mut value) = (field.name, field.value);
            if name == "referer" {
                value = secrets::sent_url(&value);
            }
            if secrets::is_secret_name(&name)
                || secrets::is_secret_value(&value) && name != "user-agent"
            {
                has_secret = true;
                continue;
            }
            // The client decides about connections and bodies itself.
            if field_names::reserved(&name).is_some() || name == "expect" {
                continue;
            }
            let name = HeaderName::try_from(name).map_err(|_| "invalid header name")?;
            let value = HeaderValue::try_from(value).map_err(|_| "invalid header value")?;
            sent.append(name, value);
        }
        left_out.secret_headers += u64::from(has_secret);
        let authority = authority.unwrap_or_else(|| self.default_host.to_owned());
        let path = PathAndQuery::try_from(target).map_err(|_| "the path cannot be sent")?;
        let server_name = server_name.unwrap_or_else(|| host_of(&authority).to_owned());
        let key = format!("{method}\n{authority}\n{path}\n{server_name}\n{sent:?}");
        let request = SentRequest {
            method,
            authority,
            target: path,
            headers: sent,
            server_name,
        };
        Ok(Some((key, request)))
    }
}

impl SentRequest {
    /// Describes the request without its query, and without parts of its path that may be secret.
    pub(super) fn describe(&self, scheme: UrlScheme) -> String {
        let Self {
            method, authority, ..
        } = self;
        let path = secrets::shown_url(self.target.path());
        format!("{method} {}://{authority}{path}", scheme.as_str())
    }
}

/// Removes the port and the brackets of an IPv6 address.
fn host_of(authority: &str) -> &str {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    authority.split(':').next().unwrap_or_default()
}

/// The scheme, host and port of a gateway's URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GatewayUrl {
    pub(super) scheme: UrlScheme,
    pub(super) host: String,
    pub(super) port: u16,
}

impl GatewayUrl {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let no_headers: [&str; 0] = [];
        let request = sesame_explain::ExplainRequest::parse("GET", text, &no_headers, None)?;
        ensure!(
            request.path == "/",
            "URL {text:?}: expected only a scheme, a host and a port, such as https://192.0.2.1"
        );
        let host = host_of(&request.authority).to_owned();
        let parsed = (!host.is_empty()).then_some(Self {
            scheme: request.scheme,
            host,
            port: request.port,
        });
        parsed.with_context(|| format!("URL {text:?}: it has no host"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(
        log: &str,
        all_methods: bool,
        limit: usize,
    ) -> anyhow::Result<(Vec<String>, LeftOut)> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), log).expect("a log");
        let selection = RequestSelection {
            default_host: "default.test",
            scheme: UrlScheme::Http,
            all_methods,
            limit,
        };
        let (requests, left_out) = selection.read(file.path())?;
        let texts = requests.iter().map(|it| {
            let headers = it.headers.iter();
            let headers: Vec<String> = headers
                .map(|(name, value)| format!("{name}={value:?}"))
                .collect();
            format!(
                "{} {} {} {}",
                it.method,
                it.authority,
                it.target,
                headers.join(" ")
            )
        });
        Ok((texts.collect(), left_out))
    }

    fn line(request: &str) -> String {
        format!("192.0.2.1 - - [t] \"{request} HTTP/1.1\" 200 5 \"-\" \"-\"\n")
    }

    #[test]
    fn only_different_safe_requests_are_selected() {
        let log = [
            "GET /a",
            "GET /a",
            "POST /a",
            "HEAD /a",
            "DELETE /a",
            "TRACE /a",
            "GET /a?_method=DELETE",
            "GET /b",
        ]
        .map(line)
        .concat();
        let (requests, left_out) = selected(&log, false, 2).expect("requests");
        assert_eq!(requests, ["GET default.test /a ", "HEAD default.test /a "]);
        assert_eq!((left_out.unsafe_methods, left_out.beyond_limit), (4, 1));
        let (requests, left_out) = selected(&log, true, 10).expect("requests");
        assert_eq!((requests.len(), left_out.unsafe_methods), (5, 2));
        let tls =
            r#"{"method":"GET","host":"a.test","path":"/","port":443,"tls_version":"TLSv1.3"}"#;
        let (requests, left_out) = selected(tls, false, 2).expect("requests");
        assert_eq!((requests.len(), left_out.other_scheme), (0, 1));
    }

    #[test]
    fn secrets_of_har_are_left_out() {
        let header = |name: &str, value: &str| serde_json::json!({"name": name, "value": value});
        let headers = [
            header("Host", "a.test"),
            header("Authorization", "Bearer hidden"),
            header("Cookie", "hidden=1"),
            header("X-Api-Key", "hidden"),
            header("X-Trace", "hidden-3b1f8c44d0a24e0f9f6c0d8be1a7c5aa"),
            header("Referer", "https://hidden@a.test/x#hidden?hidden"),
            header("Connection", "keep-alive"),
            header("Accept", "text/html"),
        ];
        let request = serde_json::json!({"method": "GET", "url": "http://a.test/x;sid=hidden?a=1&token=hidden", "headers": headers});
        let log = serde_json::json!({"log": {"entries": [{"request": request}]}}).to_string();
        let (requests, left_out) = selected(&log, false, 10).expect("requests");
        assert_eq!(
            requests,
            ["GET a.test /x?a=1 referer=\"https://a.test/x\" accept=\"text/html\""]
        );
        assert_eq!(
            (left_out.secret_headers, left_out.secret_parameters),
            (1, 1)
        );
    }

    #[test]
    fn unreadable_logs_are_errors() {
        for (log, word) in [("", "no request"), ("x\ny\n", "2 lines unreadable")] {
            let error = selected(log, false, 10).expect_err(log).to_string();
            assert!(error.contains(word), "{error}");
        }
        let odd = line("GET /<x>") + &line("GET /a");
        assert_eq!(
            selected(&odd, false, 10)
                .expect("requests")
                .1
                .unreadable
                .count,
            1
        );
    }

    #[test]
    fn gateway_url_has_no_path() {
        let url = |text: &str| GatewayUrl::parse(text).map(|it| (it.host, it.port));
        assert_eq!(
            url("https://192.0.2.1").expect("a URL"),
            ("192.0.2.1".to_owned(), 443)
        );
        assert_eq!(
            url("http://[::1]:8080/").expect("a URL"),
            ("::1".to_owned(), 8080)
        );
        for bad in [
            "",
            "a.test",
            "ftp://a.test",
            "http://a.test/x",
            "http://u@a.test",
            "http://[]",
        ] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }
}
