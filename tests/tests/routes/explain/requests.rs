//! Random requests, which clients send and `explain` explains.

use std::sync::Arc;

use rustls::RootCertStore;
use sesame_explain::ExplainRequest;
use sesame_tests::agent::AgentUnderTest;
use sesame_tests::client::Request;
use sesame_tests::seeded::Moments;

use super::world::{HOSTS, METHODS, index, one, rarely};

const PATHS: [&str; 17] = [
    "/",
    "/a",
    "/a/",
    "/a/b",
    "/a/b/c",
    "/b",
    "/A",
    "/A/b",
    "/c.d",
    "/a.b/c",
    "/x.png",
    "/none",
    "/~a",
    "/caf%c3%a9",
    "/caf%C3%A9",
    "/a-b/c",
    "/%C3%a9/x",
];
/// Envoy normalizes or rejects most of them.
const CROOKED: [&str; 22] = [
    "//",
    "/a//b",
    "//a",
    "/a/./b",
    "/x/../a",
    "/a/..",
    "/../a/b",
    "/%2e%2e/a",
    "/a%2Fb",
    "/a%2fb",
    "/a/%2E/b",
    "/a%5Cb",
    "/%61",
    "/%41/b",
    "/a%20b",
    "/a;x=1",
    "/a%zz",
    "/a/b/%2e",
    "/a%",
    "/a/%2F..%2fb",
    "/a%3Fb",
    "/%61%2d%7e%5F.%7C",
];
const QUERIES: [&str; 9] = [
    "",
    "",
    "?q=1",
    "?q=2",
    "?q=one",
    "?q=1&q=2",
    "?q",
    "?x=%71&Q=2",
    "?q=a/../b//c",
];

pub(crate) struct GeneratedRequest {
    pub(crate) explained: ExplainRequest,
    headers: Vec<(String, String)>,
    pub(crate) http2: bool,
}

impl GeneratedRequest {
    pub(crate) fn new(moments: &mut Moments) -> Self {
        let port = super::PORTS[index(moments, 3)];
        let host = one(moments, &HOSTS);
        let mut headers: Vec<(String, String)> = Vec::new();
        let mut method = "GET";
        let mut http2 = rarely(moments, 4);
        for name in ["x-one", "x-two"] {
            for _ in 0..index(moments, 3).saturating_sub(usize::from(rarely(moments, 2))) {
                headers.push((
                    name.to_owned(),
                    one(moments, &["1", "2", "one", "two"]).to_owned(),
                ));
            }
        }
        match moments.below(12) {
            0 => {
                method = "POST";
                http2 = true;
                let subtype = one(moments, &["", "+proto", "-web"]);
                headers.push((
                    "content-type".to_owned(),
                    format!("application/grpc{subtype}"),
                ));
            }
            1 => {
                method = "OPTIONS";
                let origin = one(
                    moments,
                    &["https://o.test", "https://x.o.test", "https://else.test"],
                );
                headers.push(("origin".to_owned(), origin.to_owned()));
                headers.push((
                    "access-control-request-method".to_owned(),
                    one(moments, &METHODS).to_owned(),
                ));
            }
            2..4 => method = one(moments, &METHODS),
            4 => headers.push(("x_under".to_owned(), "1".to_owned())),
            6 => headers.push(("x-envoy-attempt-count".to_owned(), "1".to_owned())),
            5 => headers.push(("origin".to_owned(), "https://o.test".to_owned())),
            _ => {}
        }
        let crooked = rarely(moments, 4);
        let path = if crooked {
            one(moments, &CROOKED)
        } else {
            one(moments, &PATHS)
        };
        let authority = match moments.below(36) {
            0 => host.to_ascii_uppercase(),
            1 => format!("{host}:{port}"),
            2 => format!("{host}:12345"),
            3 => format!("{host}."),
            4 => format!("{host}.:{port}"),
            // Over HTTP/2, Envoy resets these streams before it redirects the path.
            5 if !crooked => format!("other.test,{host}"),
            6 if !crooked => format!("user@{host}"),
            7 => format!("{host}.."),
            8 => format!("{host}:1:{port}"),
            _ => host.to_owned(),
        };
        let scheme = if port == 443 { "https" } else { "http" };
        let sni = if rarely(moments, 6) {
            one(moments, &HOSTS)
        } else {
            host
        };
        let mut lines: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        lines.push(format!("host: {authority}"));
        let url = format!("{scheme}://{host}:{port}{path}{}", one(moments, &QUERIES));
        let explained = ExplainRequest::parse(method, &url, &lines, Some(sni));
        Self {
            explained: explained.expect("generated requests are valid"),
            headers,
            http2,
        }
    }

    pub(crate) fn request(&self, agent: &AgentUnderTest, trust: &Arc<RootCertStore>) -> Request {
        let ExplainRequest {
            method,
            authority,
            port,
            path,
            sni,
            ..
        } = &self.explained;
        let mut request = Request::get(agent.address(*port), authority, path).method(method);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if self.http2 {
            request = request.http2();
        }
        match sni {
            Some(sni) => request.tls(sni, trust),
            None => request,
        }
    }
}
