//! Checked rules of all kinds of routes, and the context that checking one needs.
//!
//! An invalid rule is dropped and does not affect others. An invalid reference keeps its share of
//! the traffic, as an error.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_proto::expressions::{Answer, MOST_OF_ROUTE};
use sesame_proto::schema::WeightedBackend;
use sesame_proto::sizes::{self, RuleAnswer, RuleParts, RuleSize, in_words};
use sesame_proto::{refusal, schema};

use super::matches::RouteMatch;
use crate::resolve::backends::PolicedBackend;
use crate::resolve::backends::{Backends, Traffic};
use crate::resolve::context::ResolveContext;
use crate::resolve::context::grants::Referrer;
use crate::resolve::filters::rewrites::RedirectTo;
use crate::resolve::policies::traffic::filters::FilterSettings;
use crate::resolve::policies::traffic::{TrafficPolicies, TrafficSettings};
use crate::resolve::syntax::regexes::Regexes;
use crate::status::{Grounds, Verdict};
use crate::world::ObjectKey;

/// The rule of a route of a certain kind.
pub(crate) trait RouteRule: Sized + 'static {
    /// The rule after all checks.
    type Checked;

    /// The default for `rules` in the API's schema.
    const DEFAULT: &'static [Self];

    /// Returns the rule's name; empty if it has none.
    fn name(&self) -> &str;

    /// Returns how much the rule counts towards the limit on matches.
    fn matches(&self) -> usize;

    /// Returns true if it has filters that may protect something.
    fn protects(&self) -> bool;

    /// Checks the rule at `index` of its route. `unknown` is the reason why it must not be served
    /// as read: it has unknown fields that may protect something.
    fn check<'w>(
        &'w self,
        index: usize,
        unknown: Option<String>,
        cx: &mut RuleContext<'_, 'w, '_>,
    ) -> Result<RuleOutcome<'w, Self::Checked>, Grounds>;

    /// Returns the replacement of a rule that cannot be served: the same matches, with an error as
    /// the answer. Returns `None` if another route may have the requests. `withheld` is true if the
    /// rule has unknown fields that may protect something.
    fn refusing(
        &self,
        index: usize,
        withheld: bool,
        cx: &mut RuleContext<'_, '_, '_>,
    ) -> Option<Self::Checked>;

    /// Returns the replacement of all rules of a route that exceeds a limit: everything that it
    /// attaches for gets an error.
    fn refusing_all(cx: &RuleContext<'_, '_, '_>) -> Self::Checked;

    /// Combines the checked rules of a route.
    fn all(checked: Vec<Self::Checked>) -> Rules;
}

/// The result of checking a valid rule.
pub(crate) struct RuleOutcome<'w, C> {
    pub(crate) checked: C,
    pub(crate) unsupported: Option<Unsupported>,
    pub(crate) references: RuleReferences<'w>,
}

/// Findings about the references of a rule.
#[derive(Debug, Default)]
pub(crate) struct RuleReferences<'w> {
    /// Reasons and messages about invalid references.
    pub(crate) faults: Vec<Grounds>,
    /// The objects that it sends to and that get a status for it.
    pub(crate) policed: BTreeSet<PolicedBackend<'w>>,
}

impl RuleReferences<'_> {
    pub(crate) fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::default();
        for (reason, message) in &self.faults {
            verdict.refuse(*reason, message);
        }
        verdict
    }
}

/// An unsupported part of a rule, because of which its requests, or a backend's share of them, get
/// an error.
#[derive(Debug)]
pub(crate) struct Unsupported {
    pub(crate) message: String,
    /// True if the rest of the rule is served as requested.
    pub(crate) stands: bool,
    /// The consequence for the requests, appended to the message.
    pub(crate) follows: String,
}

/// The served rules of a route.
#[derive(Debug)]
pub(crate) enum Rules {
    /// Of an HTTPRoute, GRPCRoute or Ingress.
    Requests(Vec<CheckedRule>),
    /// Of a TLSRoute, TCPRoute or UDPRoute: the shares of its only rule.
    Connections(Shares),
}

/// A rule of an HTTPRoute, GRPCRoute, HTTPProxy or Ingress that can be served.
#[derive(Clone, Debug)]
pub(crate) struct CheckedRule {
    /// Index of the rule in the route.
    pub(crate) index: usize,
    /// Index of its first match in the rule: an Ingress has several of these for one rule.
    pub(crate) first: usize,
    pub(crate) matches: Vec<RouteMatch>,
    pub(crate) action: Action,
    pub(crate) request_headers: Option<Box<schema::HeaderModifier>>,
    pub(crate) response_headers: Option<Box<schema::HeaderModifier>>,
    pub(crate) cors: Option<Box<schema::Cors>>,
    pub(crate) external_auth: Option<Box<schema::ExternalAuth>>,
    /// True if a policy of the rule or its route decides on timeouts, and its listeners' do not.
    pub(crate) timeouts_decided: bool,
    /// At most [`schema::RateLimit::MAX_OF_ROUTE`], with the same answer. Without effect unless it
    /// forwards.
    pub(crate) rate_limits: Vec<Arc<schema::RateLimit>>,
    /// Filters that policies of the rule and its route decide; `None` for none.
    pub(crate) filters: Option<Arc<FilterSettings>>,
    /// True if it may protect something. Then requests that it loses must not reach another route.
    pub(crate) protects: bool,
}

/// The action on a request.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Forward(schema::Forward),
    /// A redirect, which depends on the listener.
    Redirect(RedirectTo),
    Respond(schema::DirectResponse),
}

impl Action {
    /// Returns the action that answers with this status.
    pub(crate) fn respond(status: u32) -> Self {
        Self::Respond(schema::DirectResponse::new(status))
    }
}

/// The backends of the connections or datagrams of a rule.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Shares of connections that are passed through unchanged.
    pub(crate) passed: Vec<WeightedBackend>,
    /// Shares of connections whose TLS a listener terminates. Only for TLSRoutes.
    pub(crate) terminated: Option<Terminated>,
}

/// The backends of connections whose TLS a listener terminates.
#[derive(Debug)]
pub(crate) struct Terminated {
    pub(crate) backends: Vec<WeightedBackend>,
    /// Verdict on the references for these connections: a backend may require a policy with TLS.
    pub(crate) resolved: Verdict,
}

impl CheckedRule {
    /// Returns a rule that answers all requests with an error.
    pub(crate) fn refusing(index: usize, matches: Vec<RouteMatch>) -> Self {
        Self {
            index,
            first: 0,
            matches,
            action: Action::respond(refusal::HTTP),
            request_headers: None,
            response_headers: None,
            cors: None,
            external_auth: None,
            timeouts_decided: false,
            rate_limits: Vec::new(),
            filters: None,
            protects: true,
        }
    }

    /// Returns the limits of its requests on a listener with these settings. Envoy has one answer
    /// for all limits of a route, so a rule's own limits lose theirs if the listener has limits.
    pub(crate) fn limits_on(&self, listener: &TrafficSettings) -> Vec<Arc<schema::RateLimit>> {
        if listener.refuses || !matches!(self.action, Action::Forward(_)) {
            return Vec::new();
        }
        let has_answer = |it: &schema::RateLimit| it.status != 0 || !it.response_headers.is_empty();
        let own = self.rate_limits.iter().map(|limit| {
            if listener.rate_limits.is_empty() || !has_answer(limit) {
                return Arc::clone(limit);
            }
            Arc::new(schema::RateLimit {
                name: format!("{}/plain", limit.name),
                status: 0,
                response_headers: Vec::new(),
                ..schema::RateLimit::clone(limit)
            })
        });
        own.chain(listener.rate_limits.iter().cloned()).collect()
    }

    /// Returns how often each of its matches is evaluated for a request.
    pub(crate) fn looks(&self) -> u64 {
        let answer = match self.action {
            Action::Forward(_) => Answer::Forwarded,
            Action::Redirect(_) => Answer::Redirected,
            Action::Respond(_) => Answer::Direct,
        };
        answer.looks(self.cors.is_some())
    }

    /// Returns the size of each of its matches in a virtual host, in bytes. `route` is the
    /// provenance of its route.
    /// `inherited` is the number of limits of its listeners.
    fn sizes(&self, route: &str, inherited: usize) -> impl Iterator<Item = u64> {
        let redirect;
        let answer = match &self.action {
            Action::Forward(forward) => RuleAnswer::Forward(forward),
            Action::Redirect(to) => {
                redirect = to.on("", 0);
                RuleAnswer::Redirect(&redirect)
            }
            Action::Respond(response) => RuleAnswer::Direct(Some(response)),
        };
        let filters = self.filters.as_ref().and_then(|it| it.to_schema(None));
        let size = RuleSize::new(&RuleParts {
            name: route,
            answer,
            request_headers: self.request_headers.as_deref(),
            response_headers: self.response_headers.as_deref(),
            cors: self.cors.as_deref(),
            external_auth: self.external_auth.as_deref(),
            rate_limits: self.rate_limits.len() + inherited,
            filters: filters.as_ref(),
        });
        self.matches.iter().map(move |it| {
            let path = Some(&it.path);
            size.with_match(sizes::of_match(
                path,
                &it.method,
                &it.headers,
                &it.query_params,
            ))
        })
    }
}

impl Rules {
    /// Returns their size in each virtual host, in bytes. `route` is the provenance of their route.
    /// `inherited` is the number of limits of its listeners.
    pub(crate) fn size(&self, route: &str, inherited: usize) -> u64 {
        match self {
            Self::Requests(rules) => rules
                .iter()
                .flat_map(|rule| rule.sizes(route, inherited))
                .fold(0, u64::saturating_add),
            Self::Connections(_) => 0,
        }
    }

    /// Returns the rules for requests.
    pub(crate) fn of_requests(&self) -> &[CheckedRule] {
        match self {
            Self::Requests(rules) => rules,
            Self::Connections(_) => &[],
        }
    }

    /// Returns true if they take every request of a virtual host, regardless of other routes.
    pub(crate) fn take_all(&self) -> bool {
        let Self::Requests(rules) = self else {
            return false;
        };
        let mut matches = rules.iter().flat_map(|rule| &rule.matches);
        let takes_all = matches.any(|it| it.is_all() && it.grpc.is_none());
        // A route with expressions may not fit.
        takes_all
            && rules
                .iter()
                .all(|rule| rule.matches.iter().all(|it| it.instructions == 0))
    }

    /// Returns the first rule that may protect something.
    pub(crate) fn protecting(&self) -> Option<&CheckedRule> {
        match self {
            Self::Requests(rules) => rules.iter().find(|rule| rule.protects),
            Self::Connections(_) => None,
        }
    }

    /// Fails if the configuration for the rules exceeds a route's limit on size, or on the cost of
    /// expressions. `route` is the provenance of the route, and `hostnames` the length of its list.
    pub(crate) fn affordable(&self, route: &str, hostnames: usize) -> Result<(), String> {
        self.small_enough(route, hostnames)?;
        self.cheap_enough()
    }

    fn small_enough(&self, route: &str, hostnames: usize) -> Result<(), String> {
        let Self::Requests(rules) = self else {
            return Ok(());
        };
        for rule in rules {
            let largest = rule.sizes(route, 0).max().unwrap_or_default();
            if largest > sizes::MOST_OF_MATCH {
                return Err(format!(
                    "spec.rules[{}]: its filters and backends take {} for each match; at most {} \
                    are allowed: use shorter or fewer values, or fewer backends",
                    rule.index,
                    in_words(largest),
                    in_words(sizes::MOST_OF_MATCH)
                ));
            }
        }
        let hostnames = u64::try_from(hostnames.max(1)).unwrap_or(u64::MAX);
        let size = self.size(route, 0).saturating_mul(hostnames);
        if size <= sizes::MOST_OF_ROUTE {
            return Ok(());
        }
        Err(format!(
            "spec.rules: the filters, backends and conditions of all matches take {} for \
            {hostnames} hostnames; at most {} are allowed, because each match of each hostname \
            has a copy: use fewer matches or hostnames, or shorter filters",
            in_words(size),
            in_words(sizes::MOST_OF_ROUTE)
        ))
    }

    /// Fails if the total cost of the regular expressions exceeds a route's limit.
    fn cheap_enough(&self) -> Result<(), String> {
        let Self::Requests(rules) = self else {
            return Ok(());
        };
        let cost = rules
            .iter()
            .map(|rule| {
                let own = rule.matches.iter().map(|it| it.instructions);
                own.fold(0, u64::saturating_add)
                    .saturating_mul(rule.looks())
            })
            .fold(0, u64::saturating_add);
        if cost <= MOST_OF_ROUTE {
            return Ok(());
        }
        Err(format!(
            "spec.rules: the regular expressions of all matches have {cost} instructions once compiled; at most \
             {MOST_OF_ROUTE} are allowed, because one request may be compared with all of them: use fewer or simpler ones"
        ))
    }

    /// Returns the verdict on the references behind listeners that terminate TLS, if the route has
    /// a separate one there.
    pub(crate) fn resolved_where_terminated(&self) -> Option<&Verdict> {
        match self {
            Self::Requests(_) => None,
            Self::Connections(shares) => shares.terminated.as_ref().map(|there| &there.resolved),
        }
    }
}

/// The route whose rules are checked, and the context for it.
pub(crate) struct RuleContext<'a, 'w, 'o> {
    pub(crate) referrer: Referrer<'w>,
    pub(crate) traffic: Traffic,
    /// True if a listener of the route terminates TLS. Only for TLSRoutes.
    pub(crate) terminates_tls: bool,
    pub(crate) object: &'a ObjectKey,
    /// Provenance of the route.
    pub(crate) route: &'a str,
    /// Number of hostnames of the route.
    pub(crate) hostnames: usize,
    /// Policies that may target the rule.
    pub(crate) policies: Option<&'a TrafficPolicies<'w>>,
    /// Largest number of limits that its listeners have.
    pub(crate) inherited: usize,
    pub(crate) cx: &'a mut ResolveContext<'w, 'o>,
    pub(crate) backends: &'a mut Backends<'w>,
    pub(crate) regexes: &'a mut Regexes,
}
