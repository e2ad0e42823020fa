//! Explains how Sesame responds to a request.
//!
//! Explanations reflect the rendered configuration and never affect traffic. They never contain
//! values that clients must not know, such as `session_key`. `tests/tests/routes/explain` compares
//! explanations with Envoy's responses.

#![cfg_attr(test, allow(clippy::too_many_lines))]

mod access;
mod answer;
mod audit;
mod backends;
mod balancing;
mod bounds;
mod canonical_path;
mod certificates;
mod chain;
mod changes;
mod compared;
mod connection;
mod csrf;
mod describe;
mod effects;
mod expressions;
mod hosts;
mod location;
mod matching;
mod outcome;
mod precedence;
mod protections;
mod replay;
mod request;
mod routes;
mod served;
mod text;
mod witness;

use std::collections::BTreeSet;

use sesame_proto::schema::{RequestFilters, Snapshot, VirtualHost};

pub use self::audit::{RuleAccess, access_of_rules};
pub use self::bounds::MAX_EXPLANATION_BYTES;
use self::chain::Chain;
pub use self::changes::{ChangedAnswer, changed_answers, changes_text, witnesses};
use self::compared::{Compared, Prepared};
use self::expressions::Expressions;
pub use self::outcome::{
    CandidateVerdict, ExplainedBackend, ExplainedCandidate, ExplainedFilter, ExplainedHost,
    ExplainedListener, ExplainedOutcome, ExplainedRoute, ExplainedTls, Explanation, Omitted,
};
pub use self::replay::{
    LogReader, LoggedRequest, Replay, ReplayConfiguration, ReplayError, ReplayReport,
    ReplayedGroup, UnreadableLine, UnreadableLines, parse_log_host, replay_text,
};
pub use self::request::{ExplainRequest, ExplainRequestError, HeaderField, UrlScheme};
use self::routes::Winner;
pub use self::served::{ServedPlace, served, served_text};
pub use self::text::{TextDetail, text};

/// Explains how one snapshot handles requests. Caches compiled expressions.
#[derive(Debug)]
pub struct Explainer<'s> {
    snapshot: &'s Snapshot,
    expressions: Expressions,
}

impl<'s> Explainer<'s> {
    /// Creates an explainer for `snapshot`.
    pub fn new(snapshot: &'s Snapshot) -> Self {
        Self {
            snapshot,
            expressions: Expressions::default(),
        }
    }

    /// Explains `request`. The result's JSON is smaller than [`MAX_EXPLANATION_BYTES`], excluding
    /// its copy of the request.
    pub fn explain(&mut self, request: &ExplainRequest) -> Explanation {
        let mut explanation = self.explain_in_full(request);
        bounds::limit(&mut explanation);
        explanation
    }

    /// Returns the checks and limits of a request that reaches a virtual host, as text without the
    /// names of the objects that require them.
    pub fn protections(&mut self, request: &ExplainRequest) -> BTreeSet<String> {
        let edge = self.snapshot.edge_on(request.port.into());
        let found = chain::find(self.snapshot, request).map(|found| found.chain);
        let (Ok(Chain::Requests(table)), Prepared::Compared(compared)) =
            (found, compared::prepare(request, edge))
        else {
            return BTreeSet::new();
        };
        let table = self
            .snapshot
            .route_tables
            .iter()
            .find(|it| it.name == table);
        let Some(host) = table.and_then(|table| hosts::find(table, &compared.host)) else {
            return BTreeSet::new();
        };
        let tried = routes::try_all(self.snapshot, host, &compared, &mut self.expressions);
        let route = tried.winner.map(|it| it.route);
        protections::of_route(self.snapshot, host, route)
    }

    fn explain_in_full(&mut self, request: &ExplainRequest) -> Explanation {
        let snapshot = self.snapshot;
        let mut explanation = Explanation::new(snapshot, request);
        let found = match chain::find(snapshot, request) {
            Ok(found) => found,
            Err(refused) => {
                explanation.listener = refused.listener;
                explanation.outcome = ExplainedOutcome::Refused {
                    reason: refused.reason,
                };
                return explanation;
            }
        };
        explanation.listener = found.listener;
        match found.chain {
            Chain::Connections(route) => {
                connection::explain(snapshot, route, &mut explanation);
            }
            Chain::Requests(table) => {
                let edge = snapshot.edge_on(request.port.into());
                match compared::prepare(request, edge) {
                    Prepared::Compared(compared) => self.routed(table, &compared, &mut explanation),
                    Prepared::Answered { path, outcome } => {
                        explanation.path = path;
                        explanation.outcome = outcome;
                    }
                }
            }
        }
        explanation
    }

    fn routed(&mut self, table: &str, compared: &Compared, explanation: &mut Explanation) {
        explanation.path = Some(compared.path_and_query());
        let tables = &self.snapshot.route_tables;
        let table = tables.iter().find(|it| it.name == table);
        let host = table.and_then(|table| hosts::find(table, &compared.host));
        let Some(host) = host else {
            let reason = format!(
                "no hostname of a listener or route on port {} covers {:?}",
                compared.port, compared.host
            );
            explanation.outcome = compared.answered(404, reason);
            return;
        };
        explanation.virtual_host = Some(ExplainedHost {
            route_table: table.map(|it| it.name.clone()).unwrap_or_default(),
            domain: host.domain.clone(),
        });
        let tried = routes::try_all(self.snapshot, host, compared, &mut self.expressions);
        explanation.candidates = tried.candidates;
        explanation.omitted.candidates = tried.omitted;
        self.respond(host, tried.winner, compared, explanation);
    }

    /// Explains the response once the virtual host and the route are known.
    fn respond(
        &mut self,
        host: &VirtualHost,
        winner: Option<Winner<'_>>,
        compared: &Compared,
        explanation: &mut Explanation,
    ) {
        let host_filters = host.filters.as_ref().or(self.snapshot.filters.as_deref());
        if let Some(winner) = winner {
            let (snapshot, expressions) = (self.snapshot, &mut self.expressions);
            let domain = &host.domain;
            answer::explain(snapshot, domain, winner, compared, expressions, explanation);
            let filters = winner.route.filters.as_deref().or(host_filters);
            let before = host.external_auth.iter().map(effects::authorized);
            let shared = &self.snapshot.shared_filters;
            let exempt = filters.map(|it| access::exemptions(it, shared));
            let before = before.chain(filters.into_iter().flat_map(effects::of_policies));
            let before = before.chain(exempt.into_iter().flatten());
            explanation.filters.splice(..0, before);
            refuse(filters, compared, explanation);
            return;
        }
        explanation.filters = host.external_auth.iter().map(effects::authorized).collect();
        let reason = match (host.routes.as_slice(), host.domain.as_str()) {
            ([], "*") => "no route has a hostname that covers the host".to_owned(),
            ([], domain) => format!("a listener covers {domain}, but has no route for it"),
            _ => "no route matches".to_owned(),
        };
        explanation.outcome = compared.answered(404, reason);
        refuse(host_filters, compared, explanation);
    }
}

fn refuse(filters: Option<&RequestFilters>, compared: &Compared, explanation: &mut Explanation) {
    if let Some(reason) = refusal(filters, compared) {
        explanation.outcome = compared.answered(403, reason);
        return;
    }
    let maintenance = filters.and_then(|it| it.maintenance.as_ref());
    let page = maintenance.and_then(|it| access::maintained(it, compared.client));
    if let Some(filter) = page {
        let reason = format!("{filter} answers in place of the backends");
        explanation.outcome = compared.answered(503, reason);
    }
}

fn refusal(filters: Option<&RequestFilters>, compared: &Compared) -> Option<String> {
    let refusing_filter =
        filters.and_then(|it| access::refusing(&it.address_filters, compared.client));
    let reason = refusing_filter.map(|name| format!("{name} rejects the client's address"));
    reason.or_else(|| csrf::refusal(&filters?.csrf, compared))
}

/// Why a request cannot be explained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// Several Gateways listen on the port, each on its own addresses.
    #[error("{} all listen on port {port}; select one with --gateway", bounds::join(.gateways.iter().cloned(), " and "))]
    Several {
        /// Port of the request.
        port: u16,
        /// The Gateways, as `Gateway/namespace/name`.
        gateways: Vec<String>,
    },
}

/// Explains a request to the only Gateway that listens on its port. Fails if several Gateways
/// listen on the port.
pub fn explain_any(
    snapshots: &[&Snapshot],
    request: &ExplainRequest,
) -> Result<Explanation, ExplainError> {
    let listens = |it: &&&Snapshot| chain::listens(it, request.port);
    let listening: Vec<&Snapshot> = snapshots.iter().filter(listens).copied().collect();
    match (listening.as_slice(), snapshots) {
        ([one], _) | ([], [one]) => Ok(Explainer::new(one).explain(request)),
        ([], _) => Ok(nowhere(snapshots, request)),
        (several, _) => Err(ExplainError::Several {
            port: request.port,
            gateways: several.iter().map(|it| it.gateway.clone()).collect(),
        }),
    }
}

fn nowhere(snapshots: &[&Snapshot], request: &ExplainRequest) -> Explanation {
    let ports = snapshots
        .iter()
        .map(|it| format!("{} has {}", it.gateway, chain::ports(it)));
    let ports = bounds::join(ports, ", ");
    let gateways = snapshots.iter().map(|it| it.gateway.clone());
    let mut explanation = Explanation {
        gateway: bounds::join(gateways, ", "),
        outcome: ExplainedOutcome::Refused {
            reason: format!("nothing listens on port {}; {ports}", request.port),
        },
        ..Explanation::new(&Snapshot::default(), request)
    };
    bounds::limit(&mut explanation);
    explanation
}

#[cfg(test)]
mod tests;
