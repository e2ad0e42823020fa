//! Requests a challenge as a CA does, but from a given address.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use sesame_acme::Challenge;
use tokio::net::TcpStream;

use sesame_proto::causes::with_causes;

const TIMEOUT: Duration = Duration::from_secs(3);
const MAX_BYTES: usize = 4096;

/// Why a server does not serve a challenge.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProbeError {
    /// The request and the problem.
    pub message: String,
    /// True if the server responded, but otherwise than expected.
    pub is_response: bool,
}

/// Fails unless the server at this address returns the challenge's content.
pub async fn probe(address: SocketAddr, challenge: &Challenge) -> Result<(), ProbeError> {
    let answered = tokio::time::timeout(TIMEOUT, get(address, challenge)).await;
    let fault = match answered {
        Ok(Ok(None)) => return Ok(()),
        Ok(Ok(Some(why))) => (why, true),
        Ok(Err(why)) => (why, false),
        Err(_) => (format!("no response in {TIMEOUT:?}"), false),
    };
    let (why, is_response) = fault;
    let Challenge { hostname, .. } = challenge;
    let path = challenge.path();
    Err(ProbeError {
        message: format!("GET {path} with host {hostname:?} at {address}: {why}"),
        is_response,
    })
}

/// Returns how the response differs from the expected one.
async fn get(address: SocketAddr, challenge: &Challenge) -> Result<Option<String>, String> {
    let stream = TcpStream::connect(address).await;
    let stream = TokioIo::new(stream.map_err(|error| error.to_string())?);
    let (mut sender, connection) = http1::handshake(stream)
        .await
        .map_err(|it| with_causes(&it))?;
    let connection = tokio::spawn(connection);
    let request = Request::get(challenge.path())
        .header(HOST, &challenge.hostname)
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let response = sender
        .send_request(request)
        .await
        .map_err(|it| with_causes(&it))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_BYTES)
        .collect()
        .await;
    connection.abort();
    let body = body.map_err(|error| with_causes(&*error))?.to_bytes();
    if !status.is_success() {
        return Ok(Some(format!("status {status}; expected 200")));
    }
    let is_same = *body == *challenge.key_authorization.as_bytes();
    let other = "unexpected content; another server may use the address";
    Ok((!is_same).then(|| other.to_owned()))
}
