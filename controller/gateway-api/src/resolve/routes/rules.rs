//! Checked rules of all route kinds, and the context in which they are checked.
//!
//! An invalid rule is dropped and does not affect other rules. An invalid reference keeps its
//! traffic share; requests in that share get an error.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_proto::expressions::{Answer, MAX_PER_ROUTE};
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

/// A rule of one route kind.
pub(crate) trait RouteRule: Sized + 'static {
    /// The rule after all checks.
    type Checked;

    /// The default for `rules` in the API's schema.
    const DEFAULT: &'static [Self];

    /// Returns the rule's name, or an empty string if it has none.
    fn name(&self) -> &str;

    /// Returns the number of matches that count towards the limit.
    fn matches(&self) -> usize;

    /// Returns true if the rule has filters that might be security-relevant.
    fn protects(&self) -> bool;

    /// Checks the rule at `index` in its route. If unknown fields might be security-relevant,
    /// `unknown` explains why they prevent the rule from being served.
    fn check<'w>(
        &'w self,
        index: usize,
        unknown: Option<String>,
        cx: &mut RuleContext<'_, 'w, '_>,
    ) -> Result<RuleOutcome<'w, Self::Checked>, Grounds>;

    /// Returns the replacement for a rule that cannot be served: the same matches with an error
    /// response. Returns `None` if other routes may serve the requests. `withheld` is true if the
    /// rule has unknown fields that might be security-relevant.
    fn refusing(
        &self,
        index: usize,
        withheld: bool,
        cx: &mut RuleContext<'_, '_, '_>,
    ) -> Option<Self::Checked>;

    /// Returns the replacement for all rules of a route that exceeds a limit: every request to the
    /// route gets an error.
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

/// Findings about a rule's references.
#[derive(Debug, Default)]
pub(crate) struct RuleReferences<'w> {
    /// Reasons and messages about invalid references.
    pub(crate) faults: Vec<Grounds>,
    /// The backends that list the route's Gateways in their own status or in their policies'
    /// statuses.
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

/// An unsupported part of a rule. All requests to the rule, or one backend's share of them, get an
/// error.
#[derive(Debug)]
pub(crate) struct Unsupported {
    pub(crate) message: String,
    /// True if the rest of the rule is served as configured.
    pub(crate) stands: bool,
    /// The effect on the affected requests; appended to the message.
    pub(crate) follows: String,
}

/// A route's served rules.
#[derive(Debug)]
pub(crate) enum Rules {
    /// For an HTTPRoute, GRPCRoute, HTTPProxy or Ingress.
    Requests(Vec<CheckedRule>),
    /// For a TLSRoute, TCPRoute or UDPRoute: the shares of its only rule.
    Connections(Shares),
}

/// A rule of an HTTPRoute, GRPCRoute, HTTPProxy or Ingress that can be served.
#[derive(Clone, Debug)]
pub(crate) struct CheckedRule {
    /// Index of the rule in the route.
    pub(crate) index: usize,
    /// Index of the first of these matches in the original rule: one Ingress rule becomes several
    /// checked rules.
    pub(crate) first: usize,
    pub(crate) matches: Vec<RouteMatch>,
    pub(crate) action: Action,
    pub(crate) request_headers: Option<Box<schema::HeaderModifier>>,
    pub(crate) response_headers: Option<Box<schema::HeaderModifier>>,
    pub(crate) cors: Option<Box<schema::Cors>>,
    pub(crate) external_auth: Option<Box<schema::ExternalAuth>>,
    /// True if a policy for the rule or its route sets the timeouts. They then override those from
    /// its listeners' policies.
    pub(crate) timeouts_decided: bool,
    /// At most [`schema::RateLimit::MAX_OF_ROUTE`] limits, all with the same response. Ignored
    /// unless the rule forwards requests.
    pub(crate) rate_limits: Vec<Arc<schema::RateLimit>>,
    /// Filters from policies for the rule and its route, if any.
    pub(crate) filters: Option<Arc<FilterSettings>>,
    /// True if the rule might be security-relevant. If the rule does not receive some of its
    /// requests, these must not reach another route.
    pub(crate) protects: bool,
}

/// The action for matching requests.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Forward(schema::Forward),
    /// A redirect. Its target depends on the listener.
    Redirect(RedirectTo),
    Respond(schema::DirectResponse),
}

impl Action {
    /// Returns an action that responds with this status.
    pub(crate) fn respond(status: u32) -> Self {
        Self::Respond(schema::DirectResponse::new(status))
    }
}

/// The backends for a rule's connections or datagrams.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Shares of the connections that are passed through unchanged.
    pub(crate) passed: Vec<WeightedBackend>,
    /// Shares of the connections on which a listener terminates TLS. TLSRoutes only.
    pub(crate) terminated: Option<Terminated>,
}

/// The backends for connections on which a listener terminates TLS.
#[derive(Debug)]
pub(crate) struct Terminated {
    pub(crate) backends: Vec<WeightedBackend>,
    /// Verdict on the references for these connections: a backend may require a TLS policy.
    pub(crate) resolved: Verdict,
}

impl CheckedRule {
    /// Returns a rule that responds to all requests with an error.
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

    /// Returns the rule's rate limits on a listener with these settings. Envoy supports only one
    /// rejection response per route, so the rule's custom responses are dropped if the listener has
    /// limits.
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

    /// Returns how many times Envoy evaluates each of the rule's matches per request.
    pub(crate) fn looks(&self) -> u64 {
        let answer = match self.action {
            Action::Forward(_) => Answer::Forwarded,
            Action::Redirect(_) => Answer::Redirected,
            Action::Respond(_) => Answer::Direct,
        };
        answer.looks(self.cors.is_some())
    }

    /// Returns the size of each of the rule's matches in a virtual host, in bytes. `route` is the
    /// provenance of the route. `inherited` is the number of its listeners' rate limits.
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
        let of_policies = self.filters.as_ref().map(|it| it.external_auths(None, ""));
        let own = self.external_auth.as_deref().cloned();
        let external_auths: Vec<_> = of_policies.into_iter().flatten().chain(own).collect();
        let size = RuleSize::new(&RuleParts {
            name: route,
            answer,
            request_headers: self.request_headers.as_deref(),
            response_headers: self.response_headers.as_deref(),
            cors: self.cors.as_deref(),
            external_auth: &external_auths,
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
    /// Returns the size of the rules per virtual host, in bytes. `route` is the provenance of the
    /// route. `inherited` is the number of its listeners' rate limits.
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

    /// Returns true if the rules match every request to a virtual host, regardless of other routes.
    pub(crate) fn take_all(&self) -> bool {
        let Self::Requests(rules) = self else {
            return false;
        };
        let mut matches = rules.iter().flat_map(|rule| &rule.matches);
        let takes_all = matches.any(|it| it.is_all() && it.grpc.is_none());
        // A route with regular expressions might be dropped because of their cost.
        takes_all
            && rules
                .iter()
                .all(|rule| rule.matches.iter().all(|it| it.instructions == 0))
    }

    /// Returns the first rule that might be security-relevant.
    pub(crate) fn protecting(&self) -> Option<&CheckedRule> {
        match self {
            Self::Requests(rules) => rules.iter().find(|rule| rule.protects),
            Self::Connections(_) => None,
        }
    }

    /// Fails if the rules exceed a route's limit on size or on the cost of regular expressions.
    /// `route` is the provenance of the route, and `hostnames` the number of its hostnames.
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
            if largest > sizes::MAX_PER_MATCH {
                return Err(format!(
                    "spec.rules[{}]: its filters and backends take {} for each match; at most {} \
                    are allowed: use shorter or fewer values, or fewer backends",
                    rule.index,
                    in_words(largest),
                    in_words(sizes::MAX_PER_MATCH)
                ));
            }
        }
        let hostnames = u64::try_from(hostnames.max(1)).unwrap_or(u64::MAX);
        let size = self.size(route, 0).saturating_mul(hostnames);
        if size <= sizes::MAX_PER_ROUTE {
            return Ok(());
        }
        Err(format!(
            "spec.rules: the filters, backends and conditions of all matches take {} for \
            {hostnames} hostnames; at most {} are allowed, because each match of each hostname \
            has a copy: use fewer matches or hostnames, or shorter filters",
            in_words(size),
            in_words(sizes::MAX_PER_ROUTE)
        ))
    }

    /// Fails if the total cost of the regular expressions exceeds the limit per route.
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
        if cost <= MAX_PER_ROUTE {
            return Ok(());
        }
        Err(format!(
            "spec.rules: the regular expressions of all matches have {cost} instructions once compiled; at most \
             {MAX_PER_ROUTE} are allowed, because one request may be compared with all of them: use fewer or simpler ones"
        ))
    }

    /// Returns the separate verdict on references for listeners that terminate TLS, if any.
    pub(crate) fn resolved_where_terminated(&self) -> Option<&Verdict> {
        match self {
            Self::Requests(_) => None,
            Self::Connections(shares) => shares.terminated.as_ref().map(|there| &there.resolved),
        }
    }
}

/// The route whose rules are checked, and the state needed to check them.
pub(crate) struct RuleContext<'a, 'w, 'o> {
    pub(crate) referrer: Referrer<'w>,
    pub(crate) traffic: Traffic,
    /// True if one of the route's listeners terminates TLS. TLSRoutes only.
    pub(crate) terminates_tls: bool,
    pub(crate) object: &'a ObjectKey,
    /// Provenance of the route.
    pub(crate) route: &'a str,
    /// Number of hostnames that the route lists.
    pub(crate) hostnames: usize,
    /// Policies that may target the rule.
    pub(crate) policies: Option<&'a TrafficPolicies<'w>>,
    /// Maximum number of rate limits inherited from the route's listeners.
    pub(crate) inherited: usize,
    pub(crate) cx: &'a mut ResolveContext<'w, 'o>,
    pub(crate) backends: &'a mut Backends<'w>,
    pub(crate) regexes: &'a mut Regexes,
}
