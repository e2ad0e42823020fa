//! One exchange with the admin interface: a connection, a request, its answer.

use std::fmt;
use std::path::Path;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::UnixStream;

use super::admin::AdminError;

/// An answer larger than this is refused: a dump of everything belongs into a support bundle.
const MAX_ANSWER: usize = 32 << 20;

pub(super) type Connection = SendRequest<Empty<Bytes>>;

pub(super) async fn connect(socket: &Path) -> Result<Connection, AdminError> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|source| AdminError::Connect {
            socket: socket.to_path_buf(),
            source,
        })?;
    let (sender, connection) =
        handshake(TokioIo::new(stream))
            .await
            .map_err(|error| AdminError::Broken {
                path: "connect".to_owned(),
                reason: error.to_string(),
            })?;
    // Ends when the sender is dropped or the peer closes; its error reaches the request as well.
    tokio::spawn(connection);
    Ok(sender)
}

pub(super) async fn send(
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
        .map_err(|error| AdminError::Answer {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
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

pub(super) fn expect_ok(path: &str, status: StatusCode, body: Bytes) -> Result<Bytes, AdminError> {
    if status == StatusCode::OK {
        return Ok(body);
    }
    let words: String = String::from_utf8_lossy(&body).chars().take(200).collect();
    Err(AdminError::Answer {
        path: path.to_owned(),
        reason: format!("status {status}: {}", words.trim()),
    })
}

pub(super) fn text<'a>(path: &str, body: &'a Bytes) -> Result<&'a str, AdminError> {
    std::str::from_utf8(body).map_err(|error| AdminError::Answer {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

pub(super) fn parse<'a, T: Deserialize<'a>>(path: &str, body: &'a Bytes) -> Result<T, AdminError> {
    serde_json::from_slice(body).map_err(|error| AdminError::Answer {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// Percent-encodes what is not unreserved.
pub(super) fn encode_query(text: &str) -> String {
    use fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_survives_the_query() {
        assert_eq!(encode_query("^(a|b)$"), "%5E%28a%7Cb%29%24");
    }
}
