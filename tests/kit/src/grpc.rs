//! Minimal unary gRPC with arbitrary bytes as messages.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};

use crate::client::{Reply, Request};
use crate::echo::Echo;

/// The gRPC status codes that a gateway generates itself.
pub mod code {
    /// `OK`
    pub const OK: u16 = 0;
    /// `NOT_FOUND`
    pub const NOT_FOUND: u16 = 5;
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

/// Header of a call whose own message is the response, as often as the value says. 0 means an error.
pub const RETURNED: &str = "x-returned";

/// Returns how often the backend returns the call's message, or `None` if the call does not ask
/// for it.
pub fn returned_times(headers: &HeaderMap) -> Option<usize> {
    headers.get(RETURNED)?.to_str().ok()?.parse().ok()
}

/// Responds with the request's own message.
pub async fn returned(
    request: hyper::Request<Incoming>,
    times: usize,
) -> Response<BoxBody<Bytes, Infallible>> {
    match request.into_body().collect().await {
        Ok(_) if times == 0 => respond(Bytes::new(), code::NOT_FOUND),
        Ok(call) => respond(call.to_bytes().repeat(times).into(), code::OK),
        Err(_) => respond(Bytes::new(), code::UNAVAILABLE),
    }
}

/// Converts an HTTP response to a gRPC response with status OK.
pub async fn answer(response: Response<Full<Bytes>>) -> Response<BoxBody<Bytes, Infallible>> {
    let (parts, body) = response.into_parts();
    let Ok(message) = body.collect().await;
    let mut response = respond(framed(&message.to_bytes()), code::OK);
    response.headers_mut().extend(parts.headers);
    let value = HeaderValue::from_static(CONTENT_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}

fn respond(messages: Bytes, status: u16) -> Response<BoxBody<Bytes, Infallible>> {
    let status = HeaderMap::from_iter([(
        "grpc-status".parse().expect("a header name"),
        HeaderValue::from(status),
    )]);
    // Hides the size, because gRPC servers do not send `content-length`.
    let body = Full::new(messages).map_frame(|frame| frame);
    let body = body.with_trailers(async { Some(Ok(status)) });
    let mut response = Response::new(body.boxed());
    let value = HeaderValue::from_static(CONTENT_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}

fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(PREFIX + message.len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).expect("a short message"));
    bytes.put_slice(message);
    bytes.freeze()
}
