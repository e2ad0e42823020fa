//! Checked rules of all route kinds, and the context for checking them.
//!
//! An invalid rule is dropped, or rejects its requests if it might be security-relevant. Other
//! rules are not affected. An invalid backendRef keeps its share of the traffic, and requests in
//! that share get an error.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_proto::expressions::{Answer, MAX_PER_ROUTE};
use sesame_proto::schema::WeightedBackend;
use sesame_proto::sizes::{self, RuleAnswer, RuleParts, RuleSize, in_words};
use sesame_proto::{refusal, schema};

use super::matches::RouteMatch;
use crate::backends::PolicedBackend;
use crate::backends::{Backends, Traffic};
use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use crate::filters::rewrites::RedirectTo;
use crate::policies::traffic::connections::ConnectionChecks;
use crate::policies::traffic::filters::FilterSettings;
use crate::policies::traffic::{LimitCounts, TrafficPolicies, TrafficSettings, service_of};
use crate::syntax::regexes::Regexes;
use sesame_kinds::status::{Grounds, Verdict};
use sesame_kinds::world::ObjectKey;

pub(crate) trait RouteRule: Sized + 'static {
    type Checked;

    /// The default value of `rules` in the API schema.
    const DEFAULT: &'static [Self];

    fn name(&self) -> &str;

    fn matches(&self) -> usize;

    /// Returns true if the rule has filters that might be security-relevant.
    fn protects(&self) -> bool;

    /// `unknown` explains which unknown fields prevent the rule from being served.
    fn check<'w>(
        &'w self,
        index: usize,
        unknown: Option<String>,
        cx: &mut RuleContext<'_, 'w, '_>,
    ) -> Result<RuleOutcome<'w, Self::Checked>, Grounds>;

    /// Returns a rule that rejects the requests, or `None` if other routes may serve them.
    /// `withheld` is true if the invalid rule has unknown fields that might be security-relevant.
    fn refusing(
        &self,
        index: usize,
        withheld: bool,
        cx: &mut RuleContext<'_, '_, '_>,
    ) -> Option<Self::Checked>;

    fn refusing_all(cx: &RuleContext<'_, '_, '_>) -> Self::Checked;

    fn all(checked: Vec<Self::Checked>) -> Rules;
}

pub(crate) struct RuleOutcome<'w, C> {
    pub(crate) checked: C,
    pub(crate) unsupported: Option<Unsupported>,
    pub(crate) references: RuleReferences<'w>,
}

#[derive(Debug, Default)]
pub(crate) struct RuleReferences<'w> {
    pub(crate) faults: Vec<Grounds>,
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

/// An unsupported part of a rule. The affected requests, possibly only one backend's share, get an
/// error.
#[derive(Debug)]
pub(crate) struct Unsupported {
    pub(crate) message: String,
    /// True if the rest of the rule is served as configured.
    pub(crate) rest_is_served: bool,
    pub(crate) follows: String,
}

#[derive(Debug)]
pub(crate) enum Rules {
    /// From an HTTPRoute, GRPCRoute, HTTPProxy or Ingress.
    Requests(Vec<CheckedRule>),
    /// From a TLSRoute, TCPRoute or UDPRoute.
    Connections(Shares),
}

/// A valid rule, or a rule that rejects requests in place of an invalid one.
#[derive(Clone, Debug)]
pub(crate) struct CheckedRule {
    pub(crate) index: usize,
    /// Index of the first match in the source rule, because one Ingress rule may become several
    /// checked rules.
    pub(crate) first: usize,
    pub(crate) matches: Vec<RouteMatch>,
    pub(crate) action: Action,
    pub(crate) request_headers: Option<Box<schema::HeaderModifier>>,
    pub(crate) response_headers: Option<Box<schema::HeaderModifier>>,
    pub(crate) cors: Option<Box<schema::Cors>>,
    pub(crate) external_auth: Option<Box<schema::ExternalAuth>>,
    /// True if policies for the rule or route set timeouts, which override listeners' timeouts.
    pub(crate) timeouts_decided: bool,
    /// At most [`schema::RateLimit::MAX_OF_ROUTE`] limits with the same rejection response. Used
    /// only if the rule forwards requests.
    pub(crate) rate_limits: Vec<Arc<schema::RateLimit>>,
    pub(crate) filters: Option<Arc<FilterSettings>>,
    /// True if requests must never fall through to another route.
    pub(crate) protects: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Forward(schema::Forward),
    Redirect(RedirectTo),
    Respond(schema::DirectResponse),
}

impl Action {
    pub(crate) fn respond(status: u32) -> Self {
        Self::Respond(schema::DirectResponse::new(status))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Shares {
    pub(crate) passed: Vec<WeightedBackend>,
    /// `None` unless a listener terminates TLS.
    pub(crate) terminated: Option<Terminated>,
    /// Excludes checks of listeners.
    pub(crate) checks: ConnectionChecks,
}

#[derive(Debug)]
pub(crate) struct Terminated {
    pub(crate) backends: Vec<WeightedBackend>,
    /// May differ from the verdict for passthrough, because a backend may need a TLS policy.
    pub(crate) resolved: Verdict,
}

impl CheckedRule {
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

    /// Drops the rule's custom responses if the listener also has limits that reject requests,
    /// because Envoy supports only one rejection response per route. Otherwise, the listener's
    /// reports count this rule's requests separately.
    pub(crate) fn limits_on(&self, listener: &TrafficSettings) -> Vec<Arc<schema::RateLimit>> {
        if listener.refuses || !matches!(self.action, Action::Forward(_)) {
            return Vec::new();
        }
        let has_answer = |it: &schema::RateLimit| it.status != 0 || !it.response_headers.is_empty();
        // A service's limits have their own responses.
        let shares_answer = |it: &schema::RateLimit| !it.report_only && it.service.is_none();
        let is_plain = listener.rate_limits.iter().any(|it| shares_answer(it));
        let own = self.rate_limits.iter().map(|limit| {
            if !is_plain || !has_answer(limit) {
                return Arc::clone(limit);
            }
            Arc::new(schema::RateLimit {
                name: format!("{}/plain", limit.name),
                status: 0,
                response_headers: Vec::new(),
                ..schema::RateLimit::clone(limit)
            })
        });
        let answering = self.rate_limits.iter().find(|it| has_answer(it));
        let answering = answering.filter(|_| !is_plain);
        let inherited = listener.rate_limits.iter().map(|limit| {
            let Some(own) = answering.filter(|_| limit.service.is_none()) else {
                return Arc::clone(limit);
            };
            Arc::new(schema::RateLimit {
                name: format!("{}/{}", own.name, limit.name),
                status: own.status,
                response_headers: own.response_headers.clone(),
                ..schema::RateLimit::clone(limit)
            })
        });
        with_one_service(own.chain(inherited).collect())
    }

    /// Returns how many times Envoy evaluates each match of the rule for one request.
    pub(crate) fn evaluations(&self) -> u64 {
        let answer = match self.action {
            Action::Forward(_) => Answer::Forwarded,
            Action::Redirect(_) => Answer::Redirected,
            Action::Respond(_) => Answer::Direct,
        };
        answer.evaluations(self.cors.is_some())
    }

    /// Returns the size in bytes for each match. `inherited` is the number of rate limits that
    /// listeners add.
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
        let policy_auths = self.filters.as_ref().map(|it| it.external_auths(None, ""));
        let own = self.external_auth.as_deref().cloned();
        let external_auths: Vec<_> = policy_auths.into_iter().flatten().chain(own).collect();
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

/// Drops reports to other services than the first one, because Envoy can ask only one per request.
fn with_one_service(mut limits: Vec<Arc<schema::RateLimit>>) -> Vec<Arc<schema::RateLimit>> {
    let mut enforced = limits.iter().filter(|it| !it.report_only);
    let first = enforced.find_map(|limit| service_of(limit));
    let first = first.or_else(|| limits.iter().find_map(|limit| service_of(limit)));
    if let Some((backend, domain)) = first {
        let first = (backend.to_owned(), domain.to_owned());
        limits.retain(|limit| {
            let service = service_of(limit);
            let is_first = service.is_none_or(|it| it == (first.0.as_str(), first.1.as_str()));
            is_first || !limit.report_only
        });
    }
    limits
}

impl Rules {
    /// Returns the size in bytes for one virtual host.
    pub(crate) fn size(&self, route: &str, inherited: usize) -> u64 {
        match self {
            Self::Requests(rules) => rules
                .iter()
                .flat_map(|rule| rule.sizes(route, inherited))
                .fold(0, u64::saturating_add),
            Self::Connections(_) => 0,
        }
    }

    pub(crate) fn of_requests(&self) -> &[CheckedRule] {
        match self {
            Self::Requests(rules) => rules,
            Self::Connections(_) => &[],
        }
    }

    /// Returns true if every request to a virtual host matches one of the rules.
    pub(crate) fn match_all_requests(&self) -> bool {
        let Self::Requests(rules) = self else {
            return false;
        };
        let mut matches = rules.iter().flat_map(|rule| &rule.matches);
        let takes_all = matches.any(|it| it.is_all() && it.grpc.is_none());
        // A route with expensive regular expressions might be left out, and then matches nothing.
        takes_all
            && rules
                .iter()
                .all(|rule| rule.matches.iter().all(|it| it.instructions == 0))
    }

    pub(crate) fn protecting(&self) -> Option<&CheckedRule> {
        match self {
            Self::Requests(rules) => rules.iter().find(|rule| rule.protects),
            Self::Connections(_) => None,
        }
    }

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

    fn cheap_enough(&self) -> Result<(), String> {
        let Self::Requests(rules) = self else {
            return Ok(());
        };
        let cost = rules
            .iter()
            .map(|rule| {
                let own = rule.matches.iter().map(|it| it.instructions);
                own.fold(0, u64::saturating_add)
                    .saturating_mul(rule.evaluations())
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

    pub(crate) fn resolved_where_terminated(&self) -> Option<&Verdict> {
        match self {
            Self::Requests(_) => None,
            Self::Connections(shares) => shares.terminated.as_ref().map(|there| &there.resolved),
        }
    }
}

pub(crate) struct RuleContext<'a, 'w, 'o> {
    pub(crate) referrer: Referrer<'w>,
    pub(crate) traffic: Traffic,
    pub(crate) terminates_tls: bool,
    pub(crate) object: &'a ObjectKey,
    pub(crate) route: &'a str,
    pub(crate) hostnames: usize,
    pub(crate) policies: Option<&'a TrafficPolicies<'w>>,
    pub(crate) inherited: LimitCounts,
    pub(crate) cx: &'a mut ResolveContext<'w, 'o>,
    pub(crate) backends: &'a mut Backends<'w>,
    pub(crate) regexes: &'a mut Regexes,
}
