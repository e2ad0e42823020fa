//! Minimal unary gRPC with arbitrary bytes as messages.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};

use crate::client::{Reply, Request};
use crate::echo::Echo;

/// The gRPC status codes that a gateway generates itself.
pub mod code {
    /// `OK`
    pub const OK: u16 = 0;
    /// `UNIMPLEMENTED`
    pub const UNIMPLEMENTED: u16 = 12;
    /// `UNAVAILABLE`
    pub const UNAVAILABLE: u16 = 14;
}

const CONTENT_TYPE: &str = "application/grpc";
/// A flag byte and a four-byte length.
const PREFIX: usize = 5;

/// Creates a call to `service/method` with an empty message.
pub fn call(address: SocketAddr, host: &str, method: &str) -> Request {
    Request::get(address, host, &format!("/{method}"))
        .method("POST")
        .http2()
        .header("content-type", CONTENT_TYPE)
        .header("te", "trailers")
        .body(framed(b""))
}

/// Like [`call`], but uses gRPC-Web, as a browser would.
pub fn web_call(address: SocketAddr, host: &str, method: &str) -> Request {
    Request::get(address, host, &format!("/{method}"))
        .method("POST")
        .header("content-type", "application/grpc-web+proto")
        .body(framed(b""))
}

/// Returns the gRPC status from the trailers or headers.
pub fn status(reply: &Reply) -> Option<u16> {
    let own = reply.trailers.get("grpc-status");
    let value = own.or_else(|| reply.headers.get("grpc-status"))?;
    value.to_str().ok()?.parse().ok()
}

/// Returns the call as received, or `None` if no backend responded.
pub fn echo(reply: &Reply) -> Option<Echo> {
    serde_json::from_slice(reply.body.get(PREFIX..)?).ok()
}

/// Returns true if the headers are from a gRPC request.
pub fn is_request(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(CONTENT_TYPE.as_bytes()))
}

/// Converts an HTTP response to a gRPC response with status OK.
pub async fn answer(response: Response<Full<Bytes>>) -> Response<BoxBody<Bytes, Infallible>> {
    let (mut parts, body) = response.into_parts();
    parts.status = StatusCode::OK;
    let value = HeaderValue::from_static(CONTENT_TYPE);
    parts.headers.insert(header::CONTENT_TYPE, value);
    let ok = HeaderMap::from_iter([(
        "grpc-status".parse().expect("a header name"),
        HeaderValue::from(code::OK),
    )]);
    let Ok(message) = body.collect().await;
    let body = Full::new(framed(&message.to_bytes())).with_trailers(async { Some(Ok(ok)) });
    Response::from_parts(parts, body.boxed())
}

fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(PREFIX + message.len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).expect("a short message"));
    bytes.put_slice(message);
    bytes.freeze()
}
