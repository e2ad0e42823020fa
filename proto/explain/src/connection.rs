//! Explains connections that Envoy forwards as raw bytes.

use sesame_proto::schema::{L4Route, Snapshot};

use super::access;
use super::backends::explained_backends;
use super::bounds;
use super::outcome::{ExplainedOutcome, ExplainedRoute, Explanation};

/// Shown instead of a response status.
const CLOSED: &str = "closed";

/// `route` is `None` if the listener has no route for the connection.
pub(super) fn explain(snapshot: &Snapshot, route: Option<&L4Route>, explanation: &mut Explanation) {
    let Some(route) = route else {
        explanation.outcome = ExplainedOutcome::Refused {
            reason: "no route of the listener accepts the connection: it is closed".to_owned(),
        };
        return;
    };
    let L4Route {
        name,
        hostnames: _,
        backends,
        address_filters,
        exempt_from: _,
        refused_by,
    } = route;
    explanation.route = ExplainedRoute::parse(name, false);
    explanation.filters = access::of_connections(address_filters);
    let backends = explained_backends(snapshot, backends, CLOSED, |_| None);
    let client = explanation.request.client;
    explanation.outcome = if !refused_by.is_empty() {
        let policies = bounds::join(refused_by.iter().cloned(), " and ");
        ExplainedOutcome::Refused {
            reason: format!("{policies} is not valid for the route: the connection is closed"),
        }
    } else if let Some(policy) = access::refusing(address_filters, client) {
        ExplainedOutcome::Refused {
            reason: format!("{policy} rejects the client's address: the connection is closed"),
        }
    } else if backends.iter().all(|it| it.refused.is_some()) {
        ExplainedOutcome::Refused {
            reason: "the route has no valid backend: the connection is closed".to_owned(),
        }
    } else {
        ExplainedOutcome::Connected { backends }
    };
}
