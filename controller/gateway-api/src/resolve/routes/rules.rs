//! What the rules of all kinds of routes have in common: shares of backends, mirrors, and for HTTP and gRPC
//! what is done with a request.
//!
//! A rule that is invalid is dropped and harms no sibling; a reference that is invalid keeps its share of
//! the traffic, as an error.

use sesame_proto::expressions::{Answer, MOST_OF_ROUTE};
use sesame_proto::schema;

use super::l4_rules::Shares;
use super::matches::Conditions;
use crate::api::{BackendRef, SessionPersistence};
use crate::resolve::backends::{Backends, Reached, RefFault, Traffic};
use crate::resolve::context::Context;
use crate::resolve::filters::rewrites::RedirectTo;
use crate::resolve::filters::{self, MirrorTo, RuleFault, RuleFilters, Unserved};
use crate::resolve::grants::Referrer;
use crate::resolve::sessions;
use crate::resolve::syntax::regexes::Regexes;
use crate::status::{Reason, Verdict};
use crate::world::ObjectKey;

/// The rule of a route of some kind.
pub(crate) trait Rule: Sized + 'static {
    /// What is left of it once everything is checked.
    type Checked;

    /// What the API's schema puts where `rules` is absent.
    const DEFAULT: &'static [Self];

    /// Its name; empty for none.
    fn name(&self) -> &str;

    /// How many matches it counts for in the limit of all rules.
    fn matches(&self) -> usize;

    /// Checks it; `index` is its place in the route. Also says what of it is not supported.
    fn check<'w>(
        &'w self,
        index: usize,
        cx: &mut RuleContext<'_, 'w, '_>,
    ) -> Result<(Self::Checked, Option<Unsupported>), RuleFault>;

    /// All rules of a route.
    fn all(checked: Vec<Self::Checked>) -> Rules;
}

/// The rules of a route that are served.
#[derive(Debug)]
pub(crate) enum Rules {
    /// Of an HTTPRoute or GRPCRoute.
    Requests(Vec<CheckedRule>),
    /// Of a TLSRoute, TCPRoute or UDPRoute: the shares of its only rule.
    Connections(Shares),
}

impl CheckedRule {
    /// How often each of its matches is looked at.
    pub(crate) fn looks(&self) -> u64 {
        let answer = match self.action {
            Action::Forward(_) => Answer::Forwarded,
            Action::Redirect(_) => Answer::Redirected,
            Action::Respond(_) => Answer::Direct,
        };
        answer.looks(self.cors.is_some())
    }
}

impl Rules {
    /// Says so if all regular expressions together cost more than one route may.
    pub(crate) fn affordable(&self) -> Result<(), String> {
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

    /// What is wrong with the references where a listener ends the client's TLS, if that is something else.
    pub(crate) fn resolved_where_tls_ends(&self) -> Option<&Verdict> {
        match self {
            Self::Requests(_) => None,
            Self::Connections(shares) => shares.terminated.as_ref().map(|there| &there.resolved),
        }
    }
}

/// What of a rule is not supported, so that its requests, or a backend's share of them, get an error.
#[derive(Debug)]
pub(crate) struct Unsupported {
    pub(crate) message: String,
    /// Whether the rest of the rule is served as it was asked for.
    pub(crate) stands: bool,
    /// What becomes of the requests, to be put behind the message.
    pub(crate) follows: String,
}

/// A rule of an HTTPRoute or GRPCRoute that can be served.
#[derive(Debug)]
pub(crate) struct CheckedRule {
    /// Its place in the route.
    pub(crate) index: usize,
    pub(crate) matches: Vec<Conditions>,
    pub(crate) action: Action,
    pub(crate) request_headers: Option<schema::HeaderModifier>,
    pub(crate) response_headers: Option<schema::HeaderModifier>,
    pub(crate) cors: Option<schema::Cors>,
}

/// What is done with a request.
#[derive(Debug)]
pub(crate) enum Action {
    Forward(schema::Forward),
    /// Depends on the listener.
    Redirect(RedirectTo),
    Respond(u32),
}

/// What the rules of one route have in common.
pub(crate) struct RuleContext<'a, 'w, 'o> {
    pub(crate) referrer: Referrer<'w>,
    pub(crate) traffic: Traffic,
    /// Whether the client's TLS ends at a listener of the route. Of TLSRoutes only.
    pub(crate) ends_tls: bool,
    /// The route, and its provenance.
    pub(crate) object: &'a ObjectKey,
    pub(crate) route: &'a str,
    /// Why the rule must not be served as it is read: it says more, which may protect something.
    pub(crate) unknown: Option<String>,
    pub(crate) cx: &'a mut Context<'w, 'o>,
    pub(crate) backends: &'a mut Backends<'w>,
    pub(crate) regexes: &'a mut Regexes,
    /// Collects invalid references.
    pub(crate) resolved: &'a mut Verdict,
}

/// The parts of a rule that HTTPRoute and GRPCRoute share, and what is only said of HTTP.
pub(crate) struct RequestRule<'w> {
    pub(crate) index: usize,
    pub(crate) matches: Vec<Conditions>,
    pub(crate) filters: RuleFilters<'w>,
    pub(crate) backend_refs: &'w [BackendRef],
    pub(crate) session_persistence: Option<&'w SessionPersistence>,
    /// Milliseconds; 0 for none.
    pub(crate) request_timeout_ms: u64,
    /// Whether that 0 is meant to lift every limit.
    pub(crate) request_timeout_disabled: bool,
    /// Milliseconds; 0 for none.
    pub(crate) backend_timeout_ms: u64,
    pub(crate) retry: Option<schema::Retry>,
}

impl<'w> RuleContext<'_, 'w, '_> {
    /// Decides what is done with the requests of a rule.
    pub(crate) fn requests(
        &mut self,
        rule: RequestRule<'w>,
    ) -> Result<(CheckedRule, Option<Unsupported>), RuleFault> {
        let RequestRule {
            index,
            matches,
            filters,
            backend_refs,
            session_persistence,
            request_timeout_ms,
            request_timeout_disabled,
            backend_timeout_ms,
            retry,
        } = rule;
        let RuleFilters {
            request_headers,
            response_headers,
            mirrors,
            redirect,
            rewrite,
            cors,
            unserved,
        } = filters;
        let unserved = self.unknown.take().map(Unserved::Type).or(unserved);
        let unsupported = RuleFault::unsupported;
        let session = session_persistence
            .map(|session| sessions::read(session, self.route, index))
            .transpose()
            .map_err(unsupported)?;
        let weights = read_weights(backend_refs).map_err(unsupported)?;

        // From here on the rule is valid; what follows may only cost it shares of its traffic.
        if let Some(note) = session.as_ref().and_then(|session| session.note.as_ref()) {
            self.cx
                .problems
                .add(self.object.clone(), format!("rules[{index}].{note}"));
        }
        let mut faults = Vec::new();
        let backends = self.backends(index, backend_refs, &weights, self.traffic, &mut faults);
        let mirrors = self.mirrors(index, &mirrors);
        let servable = backends
            .iter()
            .any(|backend| backend.weight > 0 && !backend.backend.is_empty());
        let action = match (unserved, redirect) {
            (Some(Unserved::Extension(message)), _) => {
                self.resolved
                    .refuse(Reason::InvalidKind, format!("rules[{index}].{message}"));
                Action::Respond(500)
            }
            (Some(Unserved::Type(message)), _) => {
                faults = vec![message];
                Action::Respond(500)
            }
            (None, Some(redirect)) => Action::Redirect(redirect),
            (None, None) if !servable => Action::Respond(self.traffic.refusal()),
            (None, None) => Action::Forward(schema::Forward {
                backends,
                rewrite,
                mirrors,
                request_timeout_ms,
                request_timeout_disabled,
                backend_timeout_ms,
                retry,
                session: session.map(|session| session.session),
            }),
        };
        let stands = matches!(action, Action::Forward(_));
        let unsupported = (!faults.is_empty()).then(|| Unsupported {
            message: faults.join("; "),
            stands,
            follows: if stands {
                format!(
                    "; that share of its requests is answered with {}",
                    self.traffic.refusal()
                )
            } else {
                "; its requests are answered with 500".to_owned()
            },
        });
        let checked = CheckedRule {
            index,
            matches,
            action,
            request_headers,
            response_headers,
            cors,
        };
        Ok((checked, unsupported))
    }

    /// The shares of the backends; an invalid one has no name. What is not supported goes to `faults`.
    pub(crate) fn backends(
        &mut self,
        index: usize,
        references: &'w [BackendRef],
        weights: &[u32],
        traffic: Traffic,
        faults: &mut Vec<String>,
    ) -> Vec<schema::WeightedBackend> {
        let mut found = Vec::with_capacity(references.len());
        for (i, (reference, weight)) in references.iter().zip(weights).enumerate() {
            let resolved = self.reach(
                || format!("rules[{index}].backendRefs[{i}]"),
                reference,
                traffic,
            );
            let modifiers = filters::read_backend(&reference.filters);
            let (backend, modifiers) = match (resolved, modifiers) {
                (Ok(Some(backend)), Ok(modifiers)) => (backend, modifiers),
                (resolved, modifiers) => {
                    let at = format!("rules[{index}].backendRefs[{i}]");
                    if let Err(fault) = resolved {
                        self.resolved
                            .refuse(fault.reason, format!("{at}: {}", fault.message));
                    }
                    match modifiers {
                        Ok(_) => {}
                        // A reference, unlike the others.
                        Err(RuleFault {
                            reason: Reason::InvalidKind,
                            message,
                        }) => self.resolved.refuse(
                            Reason::InvalidKind,
                            format!(
                                "{at}.{message}; its share is answered with {}",
                                self.traffic.refusal()
                            ),
                        ),
                        Err(RuleFault { reason: _, message }) => {
                            faults.push(format!("backendRefs[{i}].{message}"));
                        }
                    }
                    if *weight == 0 {
                        continue;
                    }
                    (String::new(), (None, None))
                }
            };
            let (request_headers, response_headers) = modifiers;
            found.push(schema::WeightedBackend {
                backend,
                weight: *weight,
                request_headers,
                response_headers,
            });
        }
        found
    }

    /// The Backend that a reference leads to; none if traffic to it is refused, which is worth telling.
    fn reach(
        &mut self,
        at: impl Fn() -> String,
        reference: &'w BackendRef,
        traffic: Traffic,
    ) -> Result<Option<String>, RefFault> {
        let reached = self
            .backends
            .resolve(self.referrer, reference, traffic, self.cx)?;
        Ok(match reached {
            Reached::Backend(name) => Some(name),
            Reached::Refused(why) => {
                let message = format!("{}: {why}; its share is refused", at());
                self.cx.problems.add(self.object.clone(), message);
                None
            }
        })
    }

    fn mirrors(&mut self, index: usize, mirrors: &[MirrorTo<'w>]) -> Vec<schema::Mirror> {
        let mut found = Vec::new();
        for mirror in mirrors {
            let at = || {
                format!(
                    "rules[{index}].filters[{}].requestMirror.backendRef",
                    mirror.index
                )
            };
            match self.reach(at, mirror.backend, self.traffic) {
                Ok(Some(backend)) if mirror.numerator > 0 => found.push(schema::Mirror {
                    backend,
                    numerator: mirror.numerator,
                    denominator: mirror.denominator,
                }),
                Ok(_) => {}
                Err(fault) => self
                    .resolved
                    .refuse(fault.reason, format!("{}: {}", at(), fault.message)),
            }
        }
        found
    }
}

/// The weights of all references.
pub(crate) fn read_weights(references: &[BackendRef]) -> Result<Vec<u32>, String> {
    if references.len() > 16 {
        return Err(format!(
            "backendRefs has {} entries; at most 16 are allowed",
            references.len()
        ));
    }
    references
        .iter()
        .enumerate()
        .map(|(i, reference)| {
            let weight = reference.weight.unwrap_or(1);
            u32::try_from(weight)
                .ok()
                .filter(|weight| *weight <= 1_000_000)
                .ok_or_else(|| {
                    format!(
                        "backendRefs[{i}].weight {weight} is out of range; expected 0 to 1000000"
                    )
                })
        })
        .collect()
}
