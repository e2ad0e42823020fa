//! An in-process authorization service for HTTP and Envoy's gRPC protocol. It allows requests with
//! `authorization: NAME`, where NAME is the service's name or `everybody`.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::{BufMut as _, Bytes, BytesMut};
use envoy_types::pb::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use envoy_types::pb::envoy::service::auth::v3::{
    CheckRequest, CheckResponse, DeniedHttpResponse, OkHttpResponse, check_response::HttpResponse,
};
use envoy_types::pb::envoy::r#type::v3::HttpStatus;
use envoy_types::pb::google::rpc::Status;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Headers set on allowed requests, in addition to `x-NAME`, which contains the body size.
pub const WRITTEN: [(&str, &str); 4] = [
    ("x-user", "alice"),
    ("x-tier", "gold"),
    ("x-other", "other"),
    ("host", "evil.test"),
];

/// An authorization check that the service received.
#[derive(Clone, Debug)]
pub struct ReceivedCheck {
    /// `HTTP` or `GRPC`.
    pub protocol: &'static str,
    /// The path with its query.
    pub path: String,
    /// The host of the client's request.
    pub host: String,
    /// The check's headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// The context, sorted by name; only with GRPC.
    pub context: Vec<(String, String)>,
}

impl ReceivedCheck {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// A running service, which stops on drop.
pub struct Authorizing {
    name: &'static str,
    address: SocketAddr,
    asked: Arc<Mutex<Vec<ReceivedCheck>>>,
    task: JoinHandle<()>,
}

impl Authorizing {
    /// Starts a service on a free port on 127.0.0.1.
    pub async fn start(name: &'static str) -> Self {
        Self::start_at(name, Ipv4Addr::LOCALHOST.into()).await
    }

    /// Starts a service on a free port on the given address.
    pub async fn start_at(name: &'static str, address: IpAddr) -> Self {
        let listener = TcpListener::bind((address, 0))
            .await
            .expect("the address has a free port");
        let address = listener.local_addr().expect("the socket is bound");
        let asked = Arc::default();
        let task = tokio::spawn(accept(listener, name, Arc::clone(&asked)));
        Self {
            name,
            address,
            asked,
            task,
        }
    }

    /// Returns the service's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the address on which the service listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the checks received since the previous call.
    pub fn take(&self) -> Vec<ReceivedCheck> {
        std::mem::take(&mut *self.asked.lock().expect("no panic under this lock"))
    }
}

impl Drop for Authorizing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Memory = Arc<Mutex<Vec<ReceivedCheck>>>;

async fn accept(listener: TcpListener, name: &'static str, asked: Memory) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, name, Arc::clone(&asked)));
    }
}

async fn serve(stream: TcpStream, name: &'static str, asked: Memory) {
    let mut start = [0; 3];
    let http2 = loop {
        match stream.peek(&mut start).await {
            Ok(3) => break &start == b"PRI",
            Ok(1 | 2) => tokio::task::yield_now().await,
            Ok(_) | Err(_) => return,
        }
    };
    let io = TokioIo::new(stream);
    let answer = service_fn(move |request| answer(request, name, Arc::clone(&asked)));
    // The proxy may disconnect at any time.
    let _ = if http2 {
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(io, answer)
            .await
    } else {
        hyper::server::conn::http1::Builder::new()
            .serve_connection(io, answer)
            .await
    };
}

async fn answer(
    request: Request<Incoming>,
    name: &'static str,
    memory: Memory,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes);
    let body = body.unwrap_or_default();
    let is_grpc = sesame_kit::grpc::is_request(&parts.headers);
    let asked = if is_grpc {
        parse_grpc_check(&body)
    } else {
        let headers = parts.headers.iter().map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        });
        let headers: Vec<(String, String)> = headers.collect();
        let host = headers.iter().find(|(name, _)| name == "host");
        ReceivedCheck {
            protocol: "HTTP",
            path: parts.uri.to_string(),
            host: host.map(|(_, host)| host.clone()).unwrap_or_default(),
            headers,
            body,
            context: Vec::new(),
        }
    };
    let passes =
        matches!(asked.header("authorization"), Some(it) if it == name || it == "everybody");
    let length = asked.body.len();
    memory.lock().expect("no panic under this lock").push(asked);
    let own = (format!("x-{name}"), length.to_string());
    let written = WRITTEN.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let written = written.into_iter().chain([own]);
    Ok(if is_grpc {
        grpc_answer(passes, written)
    } else {
        http_answer(passes, written)
    })
}

fn parse_grpc_check(body: &Bytes) -> ReceivedCheck {
    // A gRPC message starts with a flag byte and a four-byte length.
    let check = CheckRequest::decode(body.slice(5..)).expect("a valid check request");
    let attributes = check.attributes.expect("attributes");
    let mut context: Vec<_> = attributes.context_extensions.into_iter().collect();
    context.sort_unstable();
    let request = attributes.request;
    let http = request.and_then(|it| it.http).expect("a request");
    ReceivedCheck {
        protocol: "GRPC",
        path: http.path,
        host: http.host,
        headers: http.headers.into_iter().collect(),
        body: if http.raw_body.is_empty() {
            http.body.into()
        } else {
            http.raw_body.into()
        },
        context,
    }
}

fn http_answer(
    passes: bool,
    written: impl Iterator<Item = (String, String)>,
) -> Response<BoxBody<Bytes, Infallible>> {
    let mut response = Response::new(Full::default().boxed());
    if !passes {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        let realm = "Basic".parse().expect("a value");
        response.headers_mut().insert("www-authenticate", realm);
        return response;
    }
    for (name, value) in written {
        let name: HeaderName = name.parse().expect("a name");
        let value = value.parse().expect("a value");
        response.headers_mut().insert(name, value);
    }
    response
}

fn grpc_answer(
    passes: bool,
    written: impl Iterator<Item = (String, String)>,
) -> Response<BoxBody<Bytes, Infallible>> {
    let (code, answer) = if passes {
        let headers = written.map(|(key, value)| HeaderValueOption {
            header: Some(HeaderValue {
                key,
                value,
                ..HeaderValue::default()
            }),
            ..HeaderValueOption::default()
        });
        let ok = OkHttpResponse {
            headers: headers.collect(),
            ..OkHttpResponse::default()
        };
        (0, HttpResponse::OkResponse(ok))
    } else {
        let denied = DeniedHttpResponse {
            status: Some(HttpStatus { code: 401 }),
            ..DeniedHttpResponse::default()
        };
        (16, HttpResponse::DeniedResponse(denied))
    };
    let message = CheckResponse {
        status: Some(Status {
            code,
            ..Status::default()
        }),
        http_response: Some(answer),
        ..CheckResponse::default()
    };
    let message = message.encode_to_vec();
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).expect("a short message"));
    framed.put_slice(&message);
    let trailers = HeaderMap::from_iter([(
        HeaderName::from_static("grpc-status"),
        "0".parse().expect("a value"),
    )]);
    let body = Full::new(framed.freeze()).with_trailers(async { Some(Ok(trailers)) });
    let mut response = Response::new(body.boxed());
    let grpc = "application/grpc".parse().expect("a value");
    response.headers_mut().insert("content-type", grpc);
    response
}
