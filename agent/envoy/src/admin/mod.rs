//! Client for Envoy's admin interface: HTTP/1 over a Unix socket, never TCP.
//!
//! Queries run on the main thread, which also loads configuration. Send only cheap queries, one at
//! a time, because a large response delays the next load.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

mod accepted;
mod answers;
mod endpoints;
mod listener_counts;
mod sample;

pub use self::answers::{AdminError, Readiness, ServerInfo};
use self::endpoints::ClustersAnswer;
pub use self::endpoints::{ClusterEndpoints, EndpointCounts};
pub use self::listener_counts::ListenerCounts;
pub use self::sample::Sample;

/// Maximum size of a response in bytes.
const MAX_ANSWER: usize = 32 << 20;
/// Timeout per request. Envoy may first have to load its largest file (5,000 clusters take 3 s).
const TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum length of a Unix socket path. The kernel's limit of 108 bytes includes the final zero
/// byte.
pub const MAX_SOCKET_PATH: usize = 107;

/// Client for one Envoy's admin socket. Clones share one connection.
#[derive(Clone)]
pub struct Admin {
    socket: Arc<Path>,
    connection: Arc<Mutex<Option<Connection>>>,
    timeout: Duration,
}

type Connection = SendRequest<Empty<Bytes>>;

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

impl Admin {
    /// Creates a client without connecting.
    pub fn new(socket: impl AsRef<Path>) -> Self {
        Self {
            socket: socket.as_ref().into(),
            connection: Arc::new(Mutex::new(None)),
            timeout: TIMEOUT,
        }
    }

    /// Returns a client with its own connection and this request timeout.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self {
            timeout,
            ..Self::new(&self.socket)
        }
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Drops the connection. Otherwise, requests could keep going to a draining Envoy.
    pub async fn reconnect(&self) {
        self.connection.lock().await.take();
    }

    /// Queries `/ready`.
    pub async fn ready(&self) -> Result<Readiness, AdminError> {
        let path = "/ready";
        let (_, body) = self.request(Method::GET, path).await?;
        let text = text(path, &body)?.trim();
        serde_json::from_value(text.into()).map_err(|error| unexpected(path, error))
    }

    /// Queries `/server_info` on a new connection.
    pub async fn server_info(&self) -> Result<ServerInfo, AdminError> {
        self.reconnect().await;
        self.json("/server_info").await
    }

    /// Returns the non-zero counters that match a regular expression. Scans all statistics.
    pub async fn counters(&self, filter: &str) -> Result<HashMap<String, u64>, AdminError> {
        self.numbers("Counters", filter).await
    }

    /// Returns the gauges that match a regular expression. Scans all statistics.
    pub async fn gauges(&self, filter: &str) -> Result<HashMap<String, u64>, AdminError> {
        self.numbers("Gauges", filter).await
    }

    /// Returns the names of warming clusters. Takes 10 ms with 5,000 clusters.
    pub async fn warming_clusters(&self) -> Result<Vec<String>, AdminError> {
        #[derive(Deserialize)]
        struct Dump {
            #[serde(default)]
            configs: Vec<Config>,
        }
        #[derive(Deserialize)]
        struct Config {
            #[serde(default)]
            cluster: Cluster,
        }
        #[derive(Default, Deserialize)]
        struct Cluster {
            #[serde(default)]
            name: String,
        }
        let path = "/config_dump?resource=dynamic_warming_clusters&mask=cluster.name";
        let dump: Dump = self.json(path).await?;
        Ok(dump.configs.into_iter().map(|c| c.cluster.name).collect())
    }

    /// Returns the endpoints of clusters that match a regular expression. Older Envoy versions
    /// ignore the filter.
    pub async fn endpoints(&self, filter: &str) -> Result<Vec<ClusterEndpoints>, AdminError> {
        let path = format!("/clusters?format=json&filter={}", encode_query(filter));
        let answer: ClustersAnswer = self.json(&path).await?;
        Ok(answer.clusters())
    }

    /// Returns the serial numbers of all certificates, normalized by [`serial`].
    pub async fn certificate_serials(&self) -> Result<Vec<String>, AdminError> {
        #[derive(Deserialize)]
        struct Certs {
            #[serde(default)]
            certificates: Vec<Chain>,
        }
        #[derive(Deserialize)]
        struct Chain {
            #[serde(default)]
            cert_chain: Vec<Cert>,
        }
        #[derive(Deserialize)]
        struct Cert {
            #[serde(default)]
            serial_number: String,
        }
        let certs: Certs = self.json("/certs").await?;
        let all = certs.certificates.into_iter().flat_map(|c| c.cert_chain);
        Ok(all.map(|cert| serial(&cert.serial_number)).collect())
    }

    /// Returns the number of client connections, including UDP sessions but not admin connections.
    pub async fn active_connections(&self) -> Result<u64, AdminError> {
        const TOTAL: &str = "server.total_connections";
        let filter = r"^(listener\..*\.downstream_cx_active|udp\..*\.downstream_sess_active|server\.total_connections)$";
        let gauges = self.gauges(filter).await?;
        let mut listeners = gauges
            .iter()
            .filter(|(name, _)| {
                let internal = name.starts_with("listener.admin.") || name.contains(".worker_");
                name.as_str() != TOTAL && !internal
            })
            .map(|(_, value)| *value)
            .peekable();
        if listeners.peek().is_some() {
            return Ok(listeners.sum());
        }
        // Without listener statistics, only a total is available, which includes this client's
        // connection.
        let total = gauges.get(TOTAL).copied().unwrap_or(0);
        Ok(total.saturating_sub(1))
    }

    /// Returns statistics in the Prometheus text format. Scans all statistics.
    pub async fn prometheus(&self, filter: &str) -> Result<String, AdminError> {
        let path = format!("/stats/prometheus?usedonly&filter={}", encode_query(filter));
        let body = self.get(&path).await?;
        Ok(text(&path, &body)?.to_owned())
    }

    /// Returns statistics, one `name: value` per line. Unlike in the Prometheus format, names are
    /// complete. Scans all statistics.
    pub async fn statistics(&self, filter: &str) -> Result<String, AdminError> {
        let path = format!("/stats?usedonly&filter={}", encode_query(filter));
        let body = self.get(&path).await?;
        Ok(text(&path, &body)?.to_owned())
    }

    /// Sends a request that changes state, such as `/drain_listeners?graceful`.
    pub async fn post(&self, path: &str) -> Result<Bytes, AdminError> {
        self.expect_ok(Method::POST, path).await
    }

    /// Sends a read-only request.
    pub async fn get(&self, path: &str) -> Result<Bytes, AdminError> {
        self.expect_ok(Method::GET, path).await
    }

    async fn json<T: DeserializeOwned>(&self, path: &str) -> Result<T, AdminError> {
        let body = self.get(path).await?;
        serde_json::from_slice(&body).map_err(|error| unexpected(path, error))
    }

    async fn numbers(&self, kind: &str, filter: &str) -> Result<HashMap<String, u64>, AdminError> {
        let path = format!(
            "/stats?usedonly&type={kind}&filter={}",
            encode_query(filter)
        );
        let body = self.get(&path).await?;
        let mut numbers = HashMap::new();
        for line in text(&path, &body)?.lines() {
            if let Some((name, value)) = line.rsplit_once(": ")
                && let Ok(value) = value.parse()
            {
                numbers.insert(name.to_owned(), value);
            }
        }
        Ok(numbers)
    }

    async fn expect_ok(&self, method: Method, path: &str) -> Result<Bytes, AdminError> {
        let (status, body) = self.request(method, path).await?;
        if status == StatusCode::OK {
            return Ok(body);
        }
        let words: String = String::from_utf8_lossy(&body).chars().take(200).collect();
        let reason = format!("status {status}: {}", words.trim());
        Err(unexpected(path, reason))
    }

    async fn request(&self, method: Method, path: &str) -> Result<(StatusCode, Bytes), AdminError> {
        let exchange = async {
            let mut slot = self.connection.lock().await;
            // If this future is dropped during the exchange, the connection is dropped with it.
            let kept = slot.take().filter(|c| !c.is_closed());
            let reused = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            let mut answer = send(&mut connection, &method, path).await;
            if reused && method == Method::GET && matches!(answer, Err(AdminError::Broken { .. })) {
                connection = self.connect().await?;
                answer = send(&mut connection, &method, path).await;
            }
            if answer.is_ok() {
                *slot = Some(connection);
            }
            answer
        };
        timeout(self.timeout, exchange).await.unwrap_or_else(|_| {
            Err(AdminError::Timeout {
                path: path.to_owned(),
                after: self.timeout,
            })
        })
    }

    async fn connect(&self) -> Result<Connection, AdminError> {
        let stream =
            UnixStream::connect(&self.socket)
                .await
                .map_err(|source| AdminError::Connect {
                    socket: self.socket.to_path_buf(),
                    source,
                })?;
        let (sender, connection) =
            handshake(TokioIo::new(stream))
                .await
                .map_err(|error| AdminError::Broken {
                    path: "connect".to_owned(),
                    reason: error.to_string(),
                })?;
        // The connection task ends when the sender is dropped or the peer closes. The pending
        // request returns the connection's error.
        tokio::spawn(connection);
        Ok(sender)
    }
}

async fn send(
    connection: &mut Connection,
    method: &Method,
    path: &str,
) -> Result<(StatusCode, Bytes), AdminError> {
    let broken = |error: &dyn fmt::Display| AdminError::Broken {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "envoy")
        .body(Empty::new())
        .map_err(|error| unexpected(path, error))?;
    connection.ready().await.map_err(|error| broken(&error))?;
    let response = connection
        .send_request(request)
        .await
        .map_err(|error| broken(&error))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER)
        .collect()
        .await
        .map_err(|error| broken(&error))?;
    Ok((status, body.to_bytes()))
}

fn text<'a>(path: &str, body: &'a Bytes) -> Result<&'a str, AdminError> {
    std::str::from_utf8(body).map_err(|error| unexpected(path, error))
}

fn unexpected(path: &str, reason: impl fmt::Display) -> AdminError {
    AdminError::Answer {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// Normalizes a serial number to lower case, without separators or leading zeros.
pub fn serial(text: &str) -> String {
    let digits: String = text
        .chars()
        .filter(char::is_ascii_hexdigit)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let trimmed = digits.trim_start_matches('0');
    if trimmed.is_empty() && !digits.is_empty() {
        "0".to_owned()
    } else {
        trimmed.to_owned()
    }
}

fn encode_query(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_of_all_sources_compare() {
        assert_eq!(serial("00:4E:9a"), "4e9a");
        assert_eq!(serial("4e9a"), "4e9a");
        assert_eq!(serial("00"), "0");
    }

    #[test]
    fn a_filter_survives_the_query() {
        assert_eq!(encode_query("^(a|b)$"), "%5E%28a%7Cb%29%24");
    }
}
