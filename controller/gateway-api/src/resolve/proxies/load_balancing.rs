//! Strategies of HTTPProxies for the choice of an endpoint.

use sesame_proto::schema::SessionPersistence;
use sesame_proto::schema::session_persistence::Kind;

use crate::api::{ProxyLoadBalancer, ProxyService};

/// The cookie of a session, as Contour names it.
const COOKIE: &str = "X-Contour-Session-Affinity";

/// Returns the sessions that the strategy keeps, and a warning if it is not served as written.
pub(super) fn sessions(
    policy: Option<&ProxyLoadBalancer>,
    services: &[ProxyService],
) -> (Option<SessionPersistence>, Option<String>) {
    let Some(ProxyLoadBalancer {
        strategy,
        request_hash_policies: _,
    }) = policy
    else {
        return (None, None);
    };
    let in_turn = "requests go to the endpoints in turn";
    let why = match strategy.as_str() {
        "" | "RoundRobin" => return (None, None),
        "Cookie" => {
            let session = SessionPersistence {
                kind: Some(Kind::Cookie(COOKIE.to_owned())),
                ..SessionPersistence::default()
            };
            let several = services.iter().filter(|it| !it.mirror).count() > 1;
            let why = several.then(|| {
                "loadBalancerPolicy.strategy Cookie: weights choose the service of each request \
                 first, so a client keeps its endpoint only between requests to one service"
                    .to_owned()
            });
            return (Some(session), why);
        }
        "RequestHash" => format!("is not supported; {in_turn}; use Cookie to keep sessions"),
        "Random" | "WeightedLeastRequest" => format!("is not supported; {in_turn}"),
        _ => format!("is unknown; {in_turn}; expected RoundRobin or Cookie"),
    };
    let why = format!("loadBalancerPolicy.strategy {strategy:?} {why}");
    (None, Some(why))
}
