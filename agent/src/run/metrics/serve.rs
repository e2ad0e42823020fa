//! Collects the newest values, asks the Envoys for theirs, and answers `GET /metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::scrape::{GatewayFacts, Scrape};
use super::traffic::{EnvoyTraffic, STATISTICS};
use crate::envoy::Admin;
use crate::run::observed::{AllObserved, Observed, newest};
use crate::run::report::ReportSource;

/// Path that is answered.
pub(in crate::run) const METRICS_PATH: &str = "/metrics";

/// Time that an Envoy has to say what it counted. Prometheus waits for ten seconds by default.
const PATIENCE: Duration = Duration::from_secs(2);

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The values that metrics are made of.
#[derive(Clone)]
pub(in crate::run) struct MetricsSource {
    pub(in crate::run) report: ReportSource,
    pub(in crate::run) observed: watch::Receiver<AllObserved>,
}

impl MetricsSource {
    /// Returns the answer to a request with these headers: the text format of Prometheus, or OpenMetrics where it is asked for.
    pub(in crate::run) async fn answer(&self, headers: &HeaderMap) -> Response<Full<Bytes>> {
        let open = headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|accepted| accepted.contains("application/openmetrics-text"));
        let text = self.scrape().await.text(open);
        let mut response = Response::new(Full::new(Bytes::from(text)));
        let form = if open { OPEN_METRICS } else { TEXT };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(form));
        response
    }

    async fn scrape(&self) -> Scrape {
        let observed = newest(&self.observed);
        let asked = observed.iter().map(|(name, observed)| async move {
            let facts = GatewayFacts::of(observed, traffic(observed).await);
            (name.to_string(), facts)
        });
        let gateways: BTreeMap<String, GatewayFacts> = join_all(asked).await.into_iter().collect();
        Scrape {
            report: (self.report)(false),
            gateways,
        }
    }
}

/// Asks an Envoy; none if it does not answer.
async fn traffic(observed: &Observed) -> Option<EnvoyTraffic> {
    if observed.envoy.pid == 0 {
        return None;
    }
    let admin = Admin::new(&observed.envoy.admin).with_timeout(PATIENCE);
    match admin.prometheus(STATISTICS).await {
        Ok(text) => Some(EnvoyTraffic::read(&text)),
        Err(error) => {
            tracing::debug!(%error, "an Envoy does not tell what it counted");
            None
        }
    }
}

/// Answers `GET /metrics`, and nothing else, to everybody who can reach the address.
pub(in crate::run) async fn serve(listener: TcpListener, source: MetricsSource) {
    let source = Arc::new(source);
    let answer = move |request: Request<Incoming>| {
        let source = Arc::clone(&source);
        async move {
            if (request.method(), request.uri().path()) == (&Method::GET, METRICS_PATH) {
                return source.answer(request.headers()).await;
            }
            let mut response = Response::new(Full::new(Bytes::from_static(b"not found\n")));
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    };
    sesame_http_server::serve(listener, answer).await;
}
