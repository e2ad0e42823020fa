//! Determines the action of an HTTPRoute or GRPCRoute rule.

use std::collections::BTreeSet;

use sesame_proto::{refusal, schema};

use super::backend_refs::{BackendShares, read_weights};
use super::matches::RouteMatch;
use super::rules::{Action, CheckedRule, RuleContext, RuleOutcome, RuleReferences, Unsupported};
use super::sessions::{self, Session};
use crate::backends::{BackendSession, Traffic};
use crate::filters::external_auth::AuthorizeBy;
use crate::filters::rewrites::{BackendRewrites, RedirectTo};
use crate::filters::{MirrorTo, RuleFilters, Unserved};
use crate::policies::traffic::{LimitCounts, TrafficSettings};
use sesame_kinds::api::{BackendRef, SessionPersistence};
use sesame_kinds::status::{Grounds, Reason, unsupported};

pub(crate) struct RequestRule<'w> {
    pub(crate) index: usize,
    /// Empty if the rule has no name.
    pub(crate) name: &'w str,
    pub(crate) matches: Vec<RouteMatch>,
    pub(crate) filters: RuleFilters<'w>,
    /// True if the filters might be security-relevant.
    pub(crate) protects: bool,
    /// `Some` if unknown fields prevent the rule from being served.
    pub(crate) unknown: Option<String>,
    pub(crate) forwarding: Forwarding<'w>,
}

pub(crate) struct Forwarding<'w> {
    pub(crate) backend_refs: &'w [BackendRef],
    pub(crate) backend_rewrites: BackendRewrites,
    pub(crate) session_persistence: Option<&'w SessionPersistence>,
    pub(crate) timeouts: RequestTimeouts,
    pub(crate) retry: Option<schema::Retry>,
}

/// Timeouts in milliseconds; 0 means unset or disabled.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestTimeouts {
    pub(crate) request_ms: u64,
    /// True if the route disables the request timeout with `0s`. If the route sets no timeout, the
    /// proxy's limits apply.
    pub(crate) request_disabled: bool,
    pub(crate) backend_ms: u64,
}

struct Forwarded<'w> {
    forward: schema::Forward,
    references: RuleReferences<'w>,
    unsupported: Vec<String>,
}

impl<'w> RuleContext<'_, 'w, '_> {
    pub(super) fn requests(
        &mut self,
        rule: RequestRule<'w>,
    ) -> Result<RuleOutcome<'w, CheckedRule>, Grounds> {
        let RequestRule {
            index,
            name,
            matches,
            filters,
            protects,
            unknown,
            forwarding,
        } = rule;
        let (policy, too_many) = self.policy(name);
        let RuleFilters {
            request_headers,
            response_headers,
            mirrors,
            redirect,
            rewrite,
            cors,
            external_auth,
            response,
            maintenance,
            own,
            retry_after: _,
            unserved,
        } = filters;
        let unserved = unknown.or(too_many).map(Unserved::Type).or(unserved);
        let Forwarded {
            mut forward,
            mut references,
            unsupported: mut faults,
        } = self.forward(index, forwarding, rewrite, &mirrors)?;
        let authorized = external_auth.map(|auth| self.authorized(index, auth, &mut references));
        let is_refused = matches!(authorized, Some(None));
        let external_auth = authorized.flatten().filter(|_| unserved.is_none());
        let action = if let Some(unserved) = unserved {
            refused(index, unserved, &mut references, &mut faults)
        } else if is_refused || policy.refuses {
            // Never serve requests without the authorization or policies that apply to them.
            Action::respond(refusal::HTTP)
        } else if let Some(answer) = answered(maintenance, redirect, response) {
            answer
        } else if is_servable(&forward) {
            policy.tune(&mut forward, false);
            Action::Forward(forward)
        } else {
            Action::respond(self.traffic.refusal())
        };
        Ok(RuleOutcome {
            unsupported: unsupported_parts(&faults, &action, self.traffic),
            checked: CheckedRule {
                index,
                first: 0,
                matches,
                action,
                request_headers: request_headers.map(Box::new),
                response_headers: response_headers.map(Box::new),
                cors: cors.map(Box::new),
                external_auth: external_auth.map(Box::new),
                timeouts_decided: policy.decides_timeouts(),
                protects: protects || policy.protects(),
                rate_limits: policy.rate_limits,
                filters: policy.filters.with_own(own),
            },
            references,
        })
    }

    /// Returns the settings that apply to the rule and its route. Also returns an error if their
    /// rate limits and the listeners' together exceed the maximum, or have several services.
    fn policy(&self, rule: &str) -> (TrafficSettings, Option<String>) {
        let target = (self.referrer.namespace, self.object.name.name.as_str());
        let policies = self.policies.as_ref();
        let policy = policies.map_or_else(TrafficSettings::default, |policies| {
            policies.settings_for(self.object.kind, target, rule)
        });
        let own = LimitCounts::of(&policy.rate_limits);
        let excess = own.check(&self.inherited).err();
        (policy, excess)
    }

    fn forward(
        &mut self,
        index: usize,
        forwarding: Forwarding<'w>,
        rewrite: Option<schema::UrlRewrite>,
        mirrors: &[MirrorTo<'w>],
    ) -> Result<Forwarded<'w>, Grounds> {
        let Forwarding {
            backend_refs,
            backend_rewrites,
            session_persistence,
            timeouts,
            retry,
        } = forwarding;
        let session = session_persistence
            .map(|session| sessions::read(session, self.route, index))
            .transpose()
            .map_err(unsupported)?;
        let weights = read_weights(backend_refs).map_err(unsupported)?;

        // From here on, errors affect only part of the rule's traffic.
        if let Some(note) = session.as_ref().and_then(|session| session.note.as_ref()) {
            self.cx
                .problems
                .add(self.object.clone(), format!("rules[{index}].{note}"));
        }
        let BackendShares {
            mut backends,
            mut references,
            mut unsupported,
        } = self.shares(
            index,
            backend_refs,
            &weights,
            self.traffic,
            backend_rewrites,
        );
        let session = match session {
            Some(session) => Some(session.session),
            None => self.backend_session(index, &mut backends, &mut unsupported),
        };
        let mirrors = self.mirrors(index, mirrors, &mut references);
        let RequestTimeouts {
            request_ms,
            request_disabled,
            backend_ms,
        } = timeouts;
        let forward = schema::Forward {
            unavailable: false,
            backends,
            rewrite: rewrite.map(Box::new),
            mirrors,
            request_timeout_ms: request_ms,
            request_timeout_disabled: request_disabled,
            backend_timeout_ms: backend_ms,
            retry: retry.map(Box::new),
            session: session.map(Box::new),
            stream_idle_timeout_ms: None,
            internal_redirect: None,
        };
        Ok(Forwarded {
            forward,
            references,
            unsupported,
        })
    }

    /// Clears `backends` if the session persistence is invalid, because requests without a session
    /// might reach the wrong endpoint.
    pub(crate) fn backend_session(
        &mut self,
        index: usize,
        backends: &mut Vec<schema::WeightedBackend>,
        faults: &mut Vec<String>,
    ) -> Option<schema::SessionPersistence> {
        let used = backends.iter().filter(|share| share.weight > 0);
        let used: BTreeSet<&str> = used.map(|share| share.backend.as_str()).collect();
        let mut all = used
            .iter()
            .filter_map(|name| self.backends.session_of(name));
        let BackendSession {
            target,
            asked_by,
            spec,
        } = all.next()?;
        drop(all);
        if used.len() > 1 {
            let message = format!(
                "rules[{index}] sends to several backends, so the session persistence of \
                {asked_by} does not apply; set sessionPersistence of the rule"
            );
            self.cx.problems.add(self.object.clone(), message);
            return None;
        }
        match sessions::read(spec, &target.to_string(), 0) {
            Ok(Session { session, note }) => {
                if let Some(note) = note {
                    self.cx.problems.add(asked_by, format!("spec.{note}"));
                }
                Some(session)
            }
            Err(why) => {
                backends.clear();
                faults.push(format!("{asked_by}: spec.{why}"));
                None
            }
        }
    }

    fn authorized(
        &mut self,
        index: usize,
        auth: AuthorizeBy<'w>,
        references: &mut RuleReferences<'w>,
    ) -> Option<schema::ExternalAuth> {
        let AuthorizeBy {
            index: filter,
            backend,
            traffic,
            mut asks,
        } = auth;
        let at = || format!("rules[{index}].filters[{filter}].externalAuth.backendRef");
        let reached = self.reach(at, backend, traffic, references);
        match reached {
            Ok(name) => asks.backend = name?,
            Err((reason, why)) => {
                let refused = refusal::HTTP;
                let message = format!("{}: {why}; requests get {refused}", at());
                references.faults.push((reason, message));
                return None;
            }
        }
        Some(asks)
    }

    fn mirrors(
        &mut self,
        index: usize,
        mirrors: &[MirrorTo<'w>],
        references: &mut RuleReferences<'w>,
    ) -> Vec<schema::Mirror> {
        let mut found = Vec::new();
        for mirror in mirrors {
            let at = || {
                format!(
                    "rules[{index}].filters[{}].requestMirror.backendRef",
                    mirror.index
                )
            };
            match self.reach(at, mirror.backend, self.traffic, references) {
                Ok(Some(backend)) if mirror.numerator > 0 => found.push(schema::Mirror {
                    backend,
                    numerator: mirror.numerator,
                    denominator: mirror.denominator,
                }),
                Ok(_) => {}
                Err((reason, why)) => references.faults.push((reason, format!("{}: {why}", at()))),
            }
        }
        found
    }
}

fn refused(
    index: usize,
    unserved: Unserved,
    references: &mut RuleReferences<'_>,
    faults: &mut Vec<String>,
) -> Action {
    match unserved {
        Unserved::Extension(message) => {
            let why = format!("rules[{index}].{message}");
            references.faults.push((Reason::InvalidKind, why));
        }
        Unserved::Type(message) => *faults = vec![message],
    }
    Action::respond(refusal::HTTP)
}

fn is_servable(forward: &schema::Forward) -> bool {
    let mut backends = forward.backends.iter();
    backends.any(|backend| backend.weight > 0 && !backend.backend.is_empty())
}

fn answered(
    maintenance: Option<schema::DirectResponse>,
    redirect: Option<RedirectTo>,
    response: Option<schema::DirectResponse>,
) -> Option<Action> {
    let maintained = maintenance.map(Action::Respond);
    let redirect = redirect.map(Action::Redirect);
    let answer = maintained.or(redirect);
    answer.or_else(|| response.map(Action::Respond))
}

fn unsupported_parts(faults: &[String], action: &Action, traffic: Traffic) -> Option<Unsupported> {
    let rest_is_served = matches!(action, Action::Forward(_));
    (!faults.is_empty()).then(|| Unsupported {
        message: faults.join("; "),
        rest_is_served,
        follows: if rest_is_served {
            format!("; that share of its requests gets {}", traffic.refusal())
        } else {
            format!("; its requests get {}", refusal::HTTP)
        },
    })
}
