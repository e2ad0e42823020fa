//! A real OpenID provider, and a browser that keeps cookies.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use crate::client::{Reply, Request};
use crate::envoy::workspace;
use crate::node;

/// The provider's client.
pub const CLIENT: &str = "shop";

/// The client's secret.
pub const CLIENT_SECRET: &str = "hush-hush-hush-hush";

/// A page that a browser loads.
const PAGE: &str = "text/html,application/xhtml+xml";

/// A running provider, killed on drop.
pub struct OpenIdProvider {
    process: Child,
    address: SocketAddr,
}

impl OpenIdProvider {
    /// Starts a provider whose access tokens are valid for `seconds`. The client may be at these
    /// hosts.
    pub fn start(seconds: u32, hosts: &[&str]) -> Self {
        let mut process = Command::new("node")
            .arg(workspace().join("tests/oidc-provider/provider.mjs"))
            .arg(node::modules("oidc-provider", "oidc-provider"))
            .arg(seconds.to_string())
            .args(hosts)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("node is installed");
        let mut line = String::new();
        let output = process.stdout.take().expect("standard output is a pipe");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("the provider prints its port");
        let port = line.trim().parse().expect("a port");
        Self {
            process,
            address: (Ipv4Addr::LOCALHOST, port).into(),
        }
    }

    /// Returns the provider's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Stops the provider.
    pub fn stop(&mut self) {
        // The process may already have exited.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for OpenIdProvider {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A browser. It sends all cookies of a host, even those that need HTTPS.
#[derive(Clone)]
pub struct Browser {
    gateway: SocketAddr,
    cookies: BTreeMap<String, BTreeMap<String, String>>,
}

impl Browser {
    /// Creates a browser that finds all hosts except IP addresses at `gateway`.
    pub fn new(gateway: SocketAddr) -> Self {
        Self {
            gateway,
            cookies: BTreeMap::new(),
        }
    }

    /// Returns a host's cookies, with their full names.
    pub fn cookies(&mut self, host: &str) -> &mut BTreeMap<String, String> {
        self.cookies.entry(host.to_owned()).or_default()
    }

    /// Returns the `Cookie` header for a host.
    pub fn cookie_header(&self, host: &str) -> String {
        let cookies = self.cookies.get(host).into_iter().flatten();
        let cookies = cookies.map(|(name, value)| format!("{name}={value}"));
        cookies.collect::<Vec<_>>().join("; ")
    }

    /// Sends a request with the host's cookies, and stores the cookies of the response.
    pub async fn send(&mut self, request: &Request, host: &str) -> Reply {
        let cookies = self.cookie_header(host);
        let request = match cookies.as_str() {
            "" => request.clone(),
            cookies => request.clone().header("cookie", cookies),
        };
        let reply = request.send().await.expect("a response");
        for text in reply.values("set-cookie") {
            let (cookie, attributes) = text.split_once(';').unwrap_or((text, ""));
            let (name, value) = cookie.split_once('=').expect("a cookie has a name");
            let jar = self.cookies(host);
            if attributes.contains("01 Jan 1970") {
                jar.remove(name);
            } else {
                jar.insert(name.to_owned(), value.to_owned());
            }
        }
        reply
    }

    /// Loads a page without following redirects.
    pub async fn load(&mut self, url: &str) -> Reply {
        let (address, host, path) = self.locate(url);
        let request = Request::get(address, &host, &path).header("accept", PAGE);
        self.send(&request, &host).await
    }

    /// Logs in, and returns the URL of the callback.
    pub async fn log_in(&mut self, url: &str) -> String {
        let mut reply = self.load(url).await;
        assert_eq!(reply.status, 302, "{url} redirects to the provider");
        let mut at = location(&reply);
        let provider = origin(&at).to_owned();
        while at.starts_with(&provider) {
            reply = self.load(&at).await;
            if reply.status == 200 {
                let page = String::from_utf8_lossy(&reply.body).into_owned();
                let prompt = ["login", "consent"]
                    .into_iter()
                    .find(|prompt| page.contains(&format!("value=\"{prompt}\"")));
                let prompt = prompt.expect("a form");
                let (address, host, path) = self.locate(&at);
                let form = format!("prompt={prompt}&login=ann&password=x");
                let request = Request::get(address, &host, &path)
                    .method("POST")
                    .header("content-type", "application/x-www-form-urlencoded")
                    .body(form);
                reply = self.send(&request, &host).await;
            }
            let next = location(&reply);
            at = if next.starts_with('/') {
                format!("{provider}{next}")
            } else {
                next
            };
        }
        at
    }

    fn locate(&self, url: &str) -> (SocketAddr, String, String) {
        let (_, rest) = url.split_once("://").expect("an absolute URL");
        let end = rest.find('/').unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        let address = host.parse().unwrap_or(self.gateway);
        (address, host.to_owned(), path.to_owned())
    }
}

/// Returns the target of a redirect. Panics for other responses.
pub fn location(reply: &Reply) -> String {
    let location = reply.header("location");
    let location = location.unwrap_or_else(|| panic!("status {} redirects", reply.status));
    location.to_owned()
}

fn origin(url: &str) -> &str {
    let scheme = url.find("://").map_or(0, |at| at + 3);
    let end = url[scheme..].find('/').map_or(url.len(), |at| scheme + at);
    &url[..end]
}
