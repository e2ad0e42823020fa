use std::fmt::Write as _;

use super::describe::duration;
use super::outcome::{
    CandidateVerdict, ExplainedBackend, ExplainedCandidate, ExplainedFilter, ExplainedOutcome,
    Explanation,
};

/// Maximum number of routes that are all shown even without [`TextDetail::AllRoutes`].
const FEW: usize = 8;
const MAX_ENDPOINTS: usize = 5;

/// Selects the routes to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextDetail {
    /// All routes if there are few, otherwise routes with a matching path.
    Brief,
    /// All routes.
    AllRoutes,
}

/// Formats the explanation.
pub fn text(explanation: &Explanation, detail: TextDetail) -> String {
    let mut text = String::new();
    let Explanation {
        gateway,
        request,
        listener,
        path,
        virtual_host,
        candidates,
        route,
        filters,
        outcome,
        notes,
        omitted,
    } = explanation;
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{request}");
    line(&mut text, "gateway", gateway);
    if let Some(listener) = listener {
        let hostname = match listener.hostname.as_str() {
            "" => String::new(),
            hostname => format!(" {hostname}"),
        };
        let what = format!(
            "{} ({}{hostname}, port {}): {}",
            listener.name, listener.protocol, request.port, listener.reason
        );
        line(&mut text, "listener", &what);
    }
    if let Some(path) = path.as_ref().filter(|path| **path != request.path) {
        line(&mut text, "path", &format!("is normalized to {path}"));
    }
    if let Some(host) = virtual_host {
        let domain = match host.domain.as_str() {
            "*" => "any other host",
            domain => domain,
        };
        line(&mut text, "host", &format!("has the routes of {domain}"));
    }
    if !candidates.is_empty() {
        line(&mut text, "routes", "in the order they are tried");
        routes(&mut text, candidates, detail);
        more(&mut text, omitted.candidates, "routes");
    }
    if let Some(route) = route.as_ref().filter(|_| candidates.is_empty()) {
        line(&mut text, "route", &route.name);
    }
    for ExplainedFilter { filter, effect } in filters {
        line(&mut text, "filter", &format!("{filter}: {effect}"));
    }
    more(&mut text, omitted.filters, "filters");
    answer(&mut text, outcome);
    more(&mut text, omitted.backends, "backends");
    for note in notes {
        line(&mut text, "note", note);
    }
    more(&mut text, omitted.notes, "notes");
    text
}

fn line(text: &mut String, title: &str, value: &str) {
    let _ = writeln!(text, "  {title:<9} {value}");
}

fn more(text: &mut String, omitted: usize, what: &str) {
    if omitted > 0 {
        let _ = writeln!(text, "    …       {omitted} more {what}");
    }
}

fn routes(text: &mut String, candidates: &[ExplainedCandidate], detail: TextDetail) {
    let all = detail == TextDetail::AllRoutes || candidates.len() <= FEW;
    let mut skipped = 0_usize;
    for candidate in candidates {
        if !all && !candidate.path_matches && candidate.verdict == CandidateVerdict::NoMatch {
            skipped += 1;
            continue;
        }
        skip(text, &mut skipped);
        let verdict = match candidate.verdict {
            CandidateVerdict::NoMatch => "no",
            CandidateVerdict::Taken => "TAKEN",
            CandidateVerdict::TooLate => "later",
        };
        let ExplainedCandidate {
            route,
            condition,
            reasons,
            ..
        } = candidate;
        let _ = writeln!(text, "    {verdict:<7} {route} ({condition})");
        for reason in reasons {
            let _ = writeln!(text, "            {reason}");
        }
    }
    skip(text, &mut skipped);
}

fn skip(text: &mut String, skipped: &mut usize) {
    let count = std::mem::take(skipped);
    if count > 0 {
        let routes = if count == 1 { "route" } else { "routes" };
        let _ = writeln!(text, "    no      {count} {routes} with another path");
    }
}

fn answer(text: &mut String, outcome: &ExplainedOutcome) {
    match outcome {
        ExplainedOutcome::Refused { reason } => line(text, "answer", &format!("none: {reason}")),
        ExplainedOutcome::Answered {
            status,
            grpc_status,
            reason,
        } => line(
            text,
            "answer",
            &format!("{status}{}: {reason}", for_grpc(*grpc_status)),
        ),
        ExplainedOutcome::Redirected {
            status,
            grpc_status,
            location,
            reason,
        } => line(
            text,
            "answer",
            &format!("{status}{} to {location}: {reason}", for_grpc(*grpc_status)),
        ),
        ExplainedOutcome::Forwarded {
            backends,
            host,
            path,
            request_timeout_ms,
            backend_timeout_ms,
            retries,
        } => {
            let limit = |time: &Option<u64>| time.map_or("none".to_owned(), duration);
            let (request, backend) = (limit(request_timeout_ms), limit(backend_timeout_ms));
            line(
                text,
                "timeouts",
                &format!("{request} for the request, {backend} per attempt"),
            );
            line(text, "retries", retries);
            line(
                text,
                "answer",
                &format!("from a backend, which gets {path} for host {host}"),
            );
            shares(text, backends);
        }
        ExplainedOutcome::Connected { backends } => {
            line(
                text,
                "answer",
                "from a backend, which gets the bytes of the connection",
            );
            shares(text, backends);
        }
    }
}

fn for_grpc(status: Option<u32>) -> String {
    status.map_or(String::new(), |code| {
        format!(" (gRPC clients get 200 with grpc-status {code})")
    })
}

fn shares(text: &mut String, backends: &[ExplainedBackend]) {
    let total: u64 = backends.iter().map(|it| u64::from(it.weight)).sum();
    for backend in backends {
        let ExplainedBackend {
            backend: name,
            weight,
            refused,
            protocol,
            tls,
            balancing,
            endpoints,
            fallback,
            filters,
            omitted,
        } = backend;
        let percent = 100 * u64::from(*weight) / total.max(1);
        let name = name.as_deref().unwrap_or("(invalid reference)");
        let mut parts = vec![name.to_owned()];
        parts.extend(protocol.iter().cloned());
        if let Some(tls) = tls {
            let more = match omitted.names {
                0 => String::new(),
                more => format!(" or {more} more names"),
            };
            parts.push(format!("TLS for {}{more}", tls.names.join(" or ")));
        }
        match refused {
            Some(reason) => parts.push(reason.clone()),
            None => parts.push(places(endpoints, omitted.endpoints, fallback.as_deref())),
        }
        let _ = writeln!(text, "    {percent:>3} %   {}", parts.join(", "));
        if let Some(balancing) = balancing {
            let _ = writeln!(text, "            balanced by {balancing}");
        }
        for ExplainedFilter { filter, effect } in filters {
            let _ = writeln!(text, "            {filter}: {effect}");
        }
        if omitted.filters > 0 {
            let _ = writeln!(text, "            {} more filters", omitted.filters);
        }
    }
}

fn places(endpoints: &[String], omitted: usize, fallback: Option<&str>) -> String {
    let shown = endpoints.get(..MAX_ENDPOINTS).unwrap_or(endpoints);
    let shown = shown.join(" ");
    match endpoints.len() + omitted {
        0 => match fallback {
            Some(backend) => format!("no endpoint is ready: {backend} gets the requests"),
            None => "no endpoint is ready: 503".to_owned(),
        },
        1 => format!("1 endpoint: {shown}"),
        count if count > MAX_ENDPOINTS => format!("{count} endpoints: {shown} …"),
        count => format!("{count} endpoints: {shown}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fallback_gets_requests_only_without_endpoints() {
        let fallback = Some("Service/web/errors/80");
        let said = "no endpoint is ready: Service/web/errors/80 gets the requests";
        assert_eq!(places(&[], 0, fallback), said);
        let endpoint = ["192.0.2.1:80".to_owned()];
        assert_eq!(places(&endpoint, 0, fallback), "1 endpoint: 192.0.2.1:80");
        assert_eq!(places(&[], 0, None), "no endpoint is ready: 503");
    }
}
