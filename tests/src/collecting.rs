//! An in-process collector for OTLP over gRPC and HTTP, and for Envoy's access log service (ALS),
//! on one port.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
pub(crate) use envoy_types::pb::opentelemetry::proto::common::v1::KeyValue;
use envoy_types::pb::opentelemetry::proto::common::v1::any_value::Value;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use sesame_kit::wait::{eventually, holds};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::collecting_logs::{self, LogStream, Record};

const WAIT: Duration = Duration::from_secs(60);

/// A received span.
#[derive(Clone, Debug)]
pub struct Span {
    /// The trace ID, in hexadecimal.
    pub trace: String,
    /// The span ID, in hexadecimal.
    pub id: String,
    /// Parent span ID in hexadecimal, or empty.
    pub parent: String,
    /// The span's name.
    pub name: String,
    /// `service.name` of the span's resource.
    pub service: String,
    /// Start and end, in nanoseconds since the Unix epoch.
    pub time: (u64, u64),
    /// Attributes, with their values as strings.
    pub attributes: Vec<(String, String)>,
    /// Headers of the export request, with the path under `:path`.
    pub headers: Vec<(String, String)>,
}

impl Span {
    /// Returns the value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        find(&self.attributes, name)
    }

    /// Returns the value of a request header.
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }
}

pub(crate) fn find<'p>(pairs: &'p [(String, String)], name: &str) -> Option<&'p str> {
    let found = pairs.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

/// A running collector, which stops on drop.
pub struct Collecting {
    address: SocketAddr,
    memory: Memory,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Collected {
    spans: Vec<Span>,
    records: Vec<Record>,
    /// Errors from messages that failed to decode.
    faults: Vec<String>,
}

type Memory = Arc<Mutex<Collected>>;

impl Collecting {
    /// Starts a collector on a free port on 127.0.0.1.
    pub async fn start() -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST.into()).await
    }

    /// Starts a collector on this address.
    pub async fn start_at(address: IpAddr) -> Self {
        Self::start_with(address, None).await
    }

    /// Starts a collector with TLS.
    pub async fn start_tls(tls: TlsAcceptor) -> Self {
        Self::start_with(Ipv4Addr::LOCALHOST.into(), Some(tls)).await
    }

    async fn start_with(address: IpAddr, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind((address, 0))
            .await
            .expect("the address has a free port");
        let address = listener.local_addr().expect("the socket is bound");
        let memory = Arc::default();
        let task = tokio::spawn(accept(listener, tls, Arc::clone(&memory)));
        Self {
            address,
            memory,
            task,
        }
    }

    /// Returns the address on which the collector listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns all received spans.
    pub fn spans(&self) -> Vec<Span> {
        let memory = self.memory.lock().expect("no panic under this lock");
        memory.spans.clone()
    }

    /// Returns all log records. Panics if a message could not be decoded.
    pub fn records(&self) -> Vec<Record> {
        let memory = self.memory.lock().expect("no panic under this lock");
        assert_eq!(memory.faults, Vec::<String>::new());
        memory.records.clone()
    }

    /// Waits for a record with this attribute, exported to a path that ends with `path`.
    pub async fn record(&self, path: &str, name: &str, value: &str) -> Record {
        let what = format!("a record with {name}={value} at {path}");
        eventually(&what, WAIT, async || {
            let records = self.records();
            let is_it = |it: &&Record| {
                let to = it.header(":path").unwrap_or_default();
                to.ends_with(path) && it.attribute(name) == Some(value)
            };
            let found = records.iter().find(is_it);
            found.cloned().ok_or_else(|| format!("{records:#?}"))
        })
        .await
    }

    /// Waits until a trace has `count` spans.
    pub async fn wait(&self, trace: &str, count: usize) -> Vec<Span> {
        let what = format!("{count} spans of trace {trace}");
        eventually(&what, WAIT, async || {
            let spans = self.spans();
            let found: Vec<Span> = spans
                .iter()
                .filter(|it| it.trace == trace)
                .cloned()
                .collect();
            holds(found.len() >= count, || format!("{spans:#?}"))?;
            Ok(found)
        })
        .await
    }

    /// Waits until `good` accepts the spans of a trace.
    pub async fn wait_trace(&self, what: &str, good: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        eventually(&format!("a trace with {what}"), WAIT, async || {
            let mut traces: BTreeMap<String, Vec<Span>> = BTreeMap::new();
            for span in self.spans() {
                traces.entry(span.trace.clone()).or_default().push(span);
            }
            let description = format!("{traces:#?}");
            let found = traces.into_values().find(|spans| good(spans));
            found.ok_or(description)
        })
        .await
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, memory: Memory) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, memory) = (tls.clone(), Arc::clone(&memory));
        connections.spawn(async move {
            match tls {
                None => serve(stream, memory).await,
                Some(tls) => {
                    // Clients that do not trust the certificate disconnect.
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, memory).await;
                    }
                }
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, memory: Memory) {
    let io = TokioIo::new(stream);
    let answer = service_fn(move |request| answer(request, Arc::clone(&memory)));
    // The proxy may disconnect at any time.
    let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
        .serve_connection(io, answer)
        .await;
}

async fn answer(
    request: Request<Incoming>,
    memory: Memory,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let (parts, body) = request.into_parts();
    let is_grpc = sesame_kit::grpc::is_request(&parts.headers);
    let headers = parts.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    let path = (":path".to_owned(), parts.uri.path().to_owned());
    let headers: Vec<_> = headers.chain([path]).collect();
    if parts.uri.path().ends_with("/StreamAccessLogs") {
        stream(body, &headers, &memory).await;
    } else {
        let body = body
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes);
        let mut body = body.unwrap_or_default();
        if is_grpc {
            // A gRPC message starts with a flag byte and a four-byte length.
            body = body.slice(5.min(body.len())..);
        }
        let mut memory = memory.lock().expect("no panic under this lock");
        if parts.uri.path().contains("logs") {
            memory.record(collecting_logs::read(body, &headers));
        } else if let Ok(message) = ExportTraces::decode(body) {
            memory.spans.extend(read(message, &headers));
        }
    }
    if !is_grpc {
        return Ok(Response::new(Full::default().boxed()));
    }
    let mut framed = BytesMut::new();
    // An empty message is a valid response for every export protocol.
    framed.put_u8(0);
    framed.put_u32(0);
    Ok(sesame_kit::grpc::answer(Response::new(Full::new(framed.freeze()))).await)
}

impl Collected {
    fn record(&mut self, read: Result<Vec<Record>, prost::DecodeError>) {
        match read {
            Ok(records) => self.records.extend(records),
            Err(fault) => self.faults.push(fault.to_string()),
        }
    }
}

async fn stream(mut body: Incoming, headers: &[(String, String)], memory: &Memory) {
    let mut stream = LogStream::default();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        let read = stream.read(&bytes, headers);
        let mut memory = memory.lock().expect("no panic under this lock");
        memory.record(read);
    }
}

fn read(message: ExportTraces, headers: &[(String, String)]) -> Vec<Span> {
    let mut found = Vec::new();
    for ResourceSpans { resource, scopes } in message.resources {
        let resource = attributes(resource.unwrap_or_default().attributes);
        let service = find(&resource, "service.name").unwrap_or_default();
        for span in scopes.into_iter().flat_map(|scope| scope.spans) {
            found.push(Span {
                trace: hex(&span.trace),
                id: hex(&span.id),
                parent: hex(&span.parent),
                name: span.name,
                service: service.to_owned(),
                time: (span.start, span.end),
                attributes: attributes(span.attributes),
                headers: headers.to_vec(),
            });
        }
    }
    found
}

pub(crate) fn attributes(pairs: Vec<KeyValue>) -> Vec<(String, String)> {
    let text = |pair: KeyValue| {
        let value = match pair.value.and_then(|value| value.value) {
            Some(Value::StringValue(text)) => text,
            Some(Value::IntValue(number)) => number.to_string(),
            Some(Value::BoolValue(yes)) => yes.to_string(),
            other => format!("{other:?}"),
        };
        (pair.key, value)
    };
    pairs.into_iter().map(text).collect()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").expect("text can be written");
    }
    text
}

/// `opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest`, limited to the fields that
/// tests read.
#[derive(Clone, PartialEq, Message)]
struct ExportTraces {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<OtlpSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
}
