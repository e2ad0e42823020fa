//! Queries each Envoy, and serves `GET /metrics`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use sesame_http_server::GuardedCallers;
use sesame_http_server::guard::Guard;
use sesame_http_server::page::{PATHS, Page};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::backends::{BACKEND_STATISTICS, BackendSeries, BackendTraffic};
use super::budgets::Budgets;
use super::scrape::{GatewayFacts, Scrape};
use super::traffic::{EnvoyTraffic, STATISTICS};
use crate::observed::{AllObserved, Observed, newest};
use crate::report::ReportSource;
use sesame_envoy::Admin;
use sesame_envoy::admin::AdminError;
use sesame_host::reserve::InotifyReserve;

pub(crate) const METRICS_PATH: &str = "/metrics";

/// Timeout for Envoy's admin interface. Must be below Prometheus's own timeout, which is ten
/// seconds by default.
const TIMEOUT: Duration = Duration::from_secs(2);

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone)]
pub(crate) struct MetricsSource {
    report: ReportSource,
    observed: watch::Receiver<AllObserved>,
    /// Maximum number of backends per Gateway with their own series.
    most_backends: usize,
    backends: KnownBackends,
    reserve: InotifyReserve,
}

/// Persists across scrapes.
#[derive(Clone, Default)]
struct KnownBackends(Arc<Mutex<BTreeMap<String, BackendSeries>>>);

impl MetricsSource {
    pub(crate) fn new(
        report: &ReportSource,
        observed: &watch::Receiver<AllObserved>,
        most_backends: usize,
        reserve: InotifyReserve,
    ) -> Self {
        Self {
            report: Arc::clone(report),
            observed: observed.clone(),
            most_backends,
            backends: KnownBackends::default(),
            reserve,
        }
    }

    /// Uses OpenMetrics if the client accepts it.
    pub(crate) async fn answer(&self, headers: &HeaderMap) -> Response<Full<Bytes>> {
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
        let running = observed.iter().filter(|(_, one)| one.envoy.pid != 0);
        let running = running.map(|(name, one)| (name.to_string(), one.envoy.pid));
        let running = running.collect();
        let level = self.reserve.level();
        let budgets = tokio::task::spawn_blocking(move || Budgets::read(running, level));
        let asked = observed.iter().map(|(name, observed)| async move {
            (name.to_string(), observed, EnvoyAnswer::of(observed).await)
        });
        let answers = join_all(asked).await;
        let gateways = self.gateways(answers);
        Scrape {
            report: (self.report)(false),
            budgets: budgets.await.unwrap_or_default(),
            gateways,
        }
    }

    /// Forgets the backends of Gateways that no longer exist.
    fn gateways(
        &self,
        answers: Vec<(String, &Observed, EnvoyAnswer)>,
    ) -> BTreeMap<String, GatewayFacts> {
        // Ignore poisoning, because the counts are consistent even after a panic.
        let mut known = self
            .backends
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, _| answers.iter().any(|(gateway, ..)| gateway == name));
        let facts = answers.into_iter().map(|(name, observed, answer)| {
            let EnvoyAnswer { traffic, backends } = answer;
            let series = known.entry(name.clone()).or_default();
            let backends = backends.map(|now| series.update(now, self.most_backends));
            let facts = GatewayFacts::of(observed, traffic, backends.unwrap_or_default());
            (name, facts)
        });
        facts.collect()
    }
}

/// Empty if the Envoy did not respond.
#[derive(Default)]
struct EnvoyAnswer {
    traffic: Option<EnvoyTraffic>,
    backends: Option<BTreeMap<String, BackendTraffic>>,
}

impl EnvoyAnswer {
    async fn of(observed: &Observed) -> Self {
        if observed.envoy.pid == 0 {
            return Self::default();
        }
        let admin = Admin::new(&observed.envoy.admin).with_timeout(TIMEOUT);
        let asked = async {
            let traffic = EnvoyTraffic::read(&admin.prometheus(STATISTICS).await?);
            let backends = BackendTraffic::read(&admin.statistics(BACKEND_STATISTICS).await?);
            Ok::<_, AdminError>((traffic, backends))
        };
        match asked.await {
            Ok((traffic, backends)) => Self {
                traffic: Some(traffic),
                backends: Some(backends),
            },
            Err(error) => {
                tracing::debug!(%error, "an Envoy did not return its statistics");
                Self::default()
            }
        }
    }
}

pub(crate) type PageSource = Arc<dyn Fn() -> Page + Send + Sync>;

/// Serves only `GET /metrics` and the status page, to every caller that `guard` admits.
pub(crate) async fn serve(
    listener: TcpListener,
    guard: Guard,
    source: MetricsSource,
    page: PageSource,
) {
    let guard = Arc::new(guard);
    let source = Arc::new(source);
    let answer = move |request: Request<Incoming>| {
        let (source, page) = (Arc::clone(&source), Arc::clone(&page));
        async move {
            if (request.method(), request.uri().path()) == (&Method::GET, METRICS_PATH) {
                return source.answer(request.headers()).await;
            }
            if request.method() == Method::GET && PATHS.contains(&request.uri().path()) {
                // Computing the conditions of all objects may be slow.
                let written = tokio::task::spawn_blocking(move || page().response());
                return match written.await {
                    Ok(response) => response.map(Full::new),
                    Err(_) => refusal(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "cannot generate the page; see the agent's log\n",
                    ),
                };
            }
            refusal(
                StatusCode::NOT_FOUND,
                "not found; try /status or /metrics\n",
            )
        }
    };
    GuardedCallers { listener, guard }.serve(answer).await;
}

fn refusal(status: StatusCode, message: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(message.as_bytes())));
    *response.status_mut() = status;
    response
}
