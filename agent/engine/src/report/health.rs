//! Reports the agent's liveness and the host's readiness.
//!
//! A host is ready if Envoy serves a verified configuration, even if a newer one is pending,
//! rejected or unreadable. A draining host is not ready.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;

use super::{Report, ReportSource};

/// Returns one sentence per reason; empty if the host is ready.
pub(crate) fn unready(report: &Report) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    if report.agent.stopping {
        reasons.push("the agent is stopping".to_owned());
    }
    if report.gateways.is_empty() && !report.source.available {
        let why = report.source.reason.as_str();
        let why = if why.is_empty() {
            "the source has not been read yet"
        } else {
            why
        };
        reasons.push(why.to_owned());
    }
    let starting = report.starting.iter();
    reasons.extend(starting.map(|name| format!("Gateway {name} is being started")));
    for gateway in &report.gateways {
        if let Some(draining) = &gateway.draining {
            reasons.push(format!(
                "Gateway {} is being drained: {draining}",
                gateway.gateway
            ));
        } else if !gateway.envoy.serves {
            reasons.push(format!(
                "the Envoy of Gateway {} does not serve: {}",
                gateway.gateway, gateway.message
            ));
        }
    }
    reasons
}

/// Returns `None` for requests other than `GET /livez` and `GET /readyz`.
pub(crate) fn answer(
    method: &Method,
    path: &str,
    report: impl Fn() -> Report,
) -> Option<(StatusCode, String)> {
    match (method, path) {
        (&Method::GET, "/livez") => Some((StatusCode::OK, "alive\n".to_owned())),
        (&Method::GET, "/readyz") => {
            let reasons = unready(&report());
            Some(if reasons.is_empty() {
                (StatusCode::OK, "ready\n".to_owned())
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n")
            })
        }
        _ => None,
    }
}

/// Serves only `/livez` and `/readyz`, to all callers that can reach the address.
pub(crate) async fn serve(listener: TcpListener, report: ReportSource) {
    let answer = move |request: Request<Incoming>| {
        let found = answer(request.method(), request.uri().path(), || report(false));
        let (status, text) = found.unwrap_or((StatusCode::NOT_FOUND, "not found\n".to_owned()));
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        std::future::ready(response)
    };
    sesame_http_server::serve(listener, answer).await;
}
