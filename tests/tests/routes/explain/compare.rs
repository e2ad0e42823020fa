//! Compares an explanation with the response that a client has received.

use sesame_explain::{ExplainedOutcome, Explanation};
use sesame_tests::client::Reply;

use super::world::MARKER;

/// Returns the first difference as the error.
pub(crate) fn compare(
    explanation: &Explanation,
    http2: bool,
    reply: Result<&Reply, &anyhow::Error>,
) -> Result<(), String> {
    let reply = match (&explanation.outcome, reply) {
        (ExplainedOutcome::Refused { .. }, Err(_)) => return Ok(()),
        (ExplainedOutcome::Refused { .. }, Ok(_)) => return Err("got a response".to_owned()),
        // Over HTTP/2, Envoy resets the stream instead of responding with 400.
        (ExplainedOutcome::Answered { status: 400, .. }, Err(_)) if http2 => return Ok(()),
        (_, Err(_)) => return Err("got no response".to_owned()),
        (_, Ok(reply)) => reply,
    };
    let route = explanation.route.as_ref().map(|route| {
        let name = route.object.rsplit('/').next().unwrap_or_default();
        format!("{name}/{}", route.rule)
    });
    let marker = reply.header(MARKER);
    match &explanation.outcome {
        ExplainedOutcome::Answered {
            status,
            grpc_status,
            ..
        } => {
            // Only Envoy's own responses may lack the marker. The response to a malformed authority
            // may have any route's headers.
            let is_refused = route.is_none() && *status == 400;
            if marker.is_some() && !is_refused && marker != route.as_deref() {
                return Err(format!("the route is {marker:?}, not {route:?}"));
            }
            if reply.backend().is_some() {
                return Err("a backend responds".to_owned());
            }
            match grpc_status {
                Some(code) => same(
                    "grpc-status",
                    reply.header("grpc-status"),
                    Some(code.to_string().as_str()),
                ),
                None => same("status", u32::from(reply.status), *status),
            }
        }
        ExplainedOutcome::Redirected {
            status,
            grpc_status,
            location,
            ..
        } => {
            same("route", marker, route.as_deref())?;
            match grpc_status {
                Some(code) => same(
                    "grpc-status",
                    reply.header("grpc-status"),
                    Some(code.to_string().as_str()),
                )?,
                None => same("status", u32::from(reply.status), *status)?,
            }
            same(
                "location",
                reply.header("location"),
                Some(location.as_str()),
            )
        }
        ExplainedOutcome::Forwarded {
            backends,
            host,
            path,
            ..
        } => {
            same("route", marker, route.as_deref())?;
            if backends.iter().all(|backend| backend.endpoints.is_empty()) {
                return Ok(());
            }
            // A gRPC response contains no echo.
            let Ok(echo) = serde_json::from_slice::<sesame_tests::echo::Echo>(&reply.body) else {
                let is_grpc = explanation.request.headers.iter();
                let mut is_grpc = is_grpc.filter(|it| it.name == "content-type");
                return match is_grpc.next() {
                    Some(_) => Ok(()),
                    None if explanation.request.method == "HEAD" => Ok(()),
                    None => Err("no backend responds".to_owned()),
                };
            };
            same("path", echo.path.as_str(), path.as_str())?;
            same("host", echo.host.as_str(), host.as_str())
        }
        other => Err(format!("unexpected outcome: {other:?}")),
    }
}

fn same<T: PartialEq + Copy + std::fmt::Debug>(
    what: &str,
    got: T,
    explained: T,
) -> Result<(), String> {
    if got == explained {
        Ok(())
    } else {
        Err(format!("the {what} is {got:?}, not {explained:?}"))
    }
}
