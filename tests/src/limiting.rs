//! An in-process rate limit service for Envoy. It allows a fixed number of requests for each
//! descriptor.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A descriptor with its domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Descriptor {
    /// The domain.
    pub domain: String,
    /// Keys and values.
    pub entries: Vec<(String, String)>,
}

impl Descriptor {
    /// Creates a descriptor.
    pub fn new(domain: &str, entries: &[(&str, &str)]) -> Self {
        let entries = entries.iter();
        let entries = entries.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Self {
            domain: domain.to_owned(),
            entries: entries.collect(),
        }
    }
}

type Counts = Arc<Mutex<BTreeMap<Descriptor, u32>>>;

/// A running service, which stops on drop.
pub struct Limiting {
    address: SocketAddr,
    counts: Counts,
    task: JoinHandle<()>,
}

impl Limiting {
    /// Starts a service that allows `allowed` requests for each descriptor.
    pub async fn start(allowed: u32) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("the address has a free port");
        let address = listener.local_addr().expect("the socket is bound");
        let counts = Counts::default();
        let task = tokio::spawn(accept(listener, allowed, Arc::clone(&counts)));
        Self {
            address,
            counts,
            task,
        }
    }

    /// Returns the address on which the service listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of requests with this descriptor.
    pub fn count(&self, descriptor: &Descriptor) -> u32 {
        let counts = self.counts.lock().expect("no panic under this lock");
        counts.get(descriptor).copied().unwrap_or_default()
    }

    /// Returns all descriptors that the service received.
    pub fn descriptors(&self) -> Vec<Descriptor> {
        let counts = self.counts.lock().expect("no panic under this lock");
        counts.keys().cloned().collect()
    }
}

impl Drop for Limiting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, allowed: u32, counts: Counts) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let counts = Arc::clone(&counts);
        let answer = service_fn(move |request| answer(request, allowed, Arc::clone(&counts)));
        connections.spawn(async move {
            // The proxy may disconnect at any time.
            let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    allowed: u32,
    counts: Counts,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let body = request.into_body().collect().await;
    let body = body.map(http_body_util::Collected::to_bytes);
    // A gRPC message starts with a flag byte and a four-byte length.
    let body = body.unwrap_or_default();
    let message = body.get(5..).unwrap_or_default();
    let request = RateLimitRequest::decode(message).expect("a valid request");
    let statuses = request.descriptors.into_iter().map(|descriptor| {
        let entries = descriptor.entries.into_iter();
        let descriptor = Descriptor {
            domain: request.domain.clone(),
            entries: entries.map(|it| (it.key, it.value)).collect(),
        };
        let mut counts = counts.lock().expect("no panic under this lock");
        let count = counts.entry(descriptor).or_default();
        *count += 1;
        let code = if *count > allowed {
            Code::OverLimit
        } else {
            Code::Ok
        };
        DescriptorStatus {
            code: code.into(),
            current_limit: Some(RateLimit {
                requests_per_unit: allowed,
                unit: Unit::Hour.into(),
                ..RateLimit::default()
            }),
            limit_remaining: allowed.saturating_sub(*count),
            ..DescriptorStatus::default()
        }
    });
    let statuses: Vec<DescriptorStatus> = statuses.collect();
    let is_over = |it: &DescriptorStatus| it.code() == Code::OverLimit;
    let code = if statuses.iter().any(is_over) {
        Code::OverLimit
    } else {
        Code::Ok
    };
    let response = RateLimitResponse {
        overall_code: code.into(),
        statuses,
        ..RateLimitResponse::default()
    };
    let body = Full::new(response.encode_to_vec().into());
    Ok(sesame_kit::grpc::answer(Response::new(body)).await)
}
