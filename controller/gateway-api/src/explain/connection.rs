//! Explains connections that Envoy forwards as raw bytes.

use sesame_proto::schema::{L4Route, Snapshot};

use super::backends::explained_backends;
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
    explanation.route = ExplainedRoute::parse(&route.name, false);
    let backends = explained_backends(snapshot, &route.backends, CLOSED, |_| None);
    explanation.outcome = if backends.iter().all(|it| it.refused.is_some()) {
        ExplainedOutcome::Refused {
            reason: "the route has no valid backend: the connection is closed".to_owned(),
        }
    } else {
        ExplainedOutcome::Connected { backends }
    };
}
