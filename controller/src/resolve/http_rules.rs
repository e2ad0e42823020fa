//! One rule of an HTTPRoute: checked, its references resolved, ready to be put into route tables.
//!
//! A rule that is invalid is dropped and harms no sibling; a reference that is invalid keeps its share of
//! the traffic, as an error.

use sesame_proto::schema;
use sesame_proto::schema::path_match::Kind as PathKind;

use super::backends::Backends;
use super::context::Context;
use super::durations;
use super::filters::{self, RuleFault, RuleFilters, Unserved};
use super::grants::Referrer;
use super::matches::{self, Conditions};
use super::names;
use super::regexes::Regexes;
use super::rewrites::RedirectTo;
use super::sessions;
use crate::api::{BackendRef, HttpMatch, HttpRule, Retry, Timeouts};
use crate::status::{Reason, Verdict};
use crate::world::ObjectKey;

/// A rule that can be served.
#[derive(Debug)]
pub(super) struct CheckedRule {
    /// Its place in the route.
    pub(super) index: usize,
    pub(super) matches: Vec<Conditions>,
    pub(super) action: Action,
    pub(super) request_headers: Option<schema::HeaderModifier>,
    pub(super) response_headers: Option<schema::HeaderModifier>,
    pub(super) cors: Option<schema::Cors>,
    /// What of it is not supported, so that its requests, or a backend's share of them, get 500.
    pub(super) unsupported: Option<String>,
}

impl CheckedRule {
    /// Whether anything of it is served as it was asked for.
    pub(super) fn stands(&self) -> bool {
        self.unsupported.is_none() || matches!(self.action, Action::Forward(_))
    }
}

/// What is done with a request.
#[derive(Debug)]
pub(super) enum Action {
    Forward(schema::Forward),
    /// Depends on the listener.
    Redirect(RedirectTo),
    Respond(u32),
}

/// What the rules of one route have in common.
pub(super) struct RuleContext<'a, 'w, 'o> {
    pub(super) referrer: Referrer<'w>,
    /// The route, and its provenance.
    pub(super) object: &'a ObjectKey,
    pub(super) route: &'a str,
    pub(super) cx: &'a mut Context<'w, 'o>,
    pub(super) backends: &'a mut Backends<'w>,
    pub(super) regexes: &'a mut Regexes,
    /// Collects invalid references.
    pub(super) resolved: &'a mut Verdict,
}

impl<'w> RuleContext<'_, 'w, '_> {
    pub(super) fn check(
        &mut self,
        index: usize,
        rule: &'w HttpRule,
    ) -> Result<CheckedRule, RuleFault> {
        let HttpRule {
            // Checked with those of the other rules.
            name: _,
            matches,
            filters,
            backend_refs,
            timeouts,
            retry,
            session_persistence,
        } = rule;
        let unsupported = RuleFault::unsupported;
        let matches = self.matches(matches).map_err(unsupported)?;
        let one_prefix = matches!(
            matches.as_slice(),
            [Conditions {
                path: PathKind::Prefix(_),
                ..
            }]
        );
        let RuleFilters {
            request_headers,
            response_headers,
            mirrors,
            redirect,
            rewrite,
            cors,
            unserved,
        } = filters::read(filters, one_prefix)?;
        if redirect.is_some() && !backend_refs.is_empty() {
            return Err(unsupported(
                "backendRefs must be empty with a RequestRedirect filter".to_owned(),
            ));
        }
        let RuleTimeouts {
            request_ms: request_timeout_ms,
            request_disabled: request_timeout_disabled,
            backend_ms: backend_timeout_ms,
        } = read_timeouts(timeouts.as_ref()).map_err(unsupported)?;
        let retry = retry
            .as_ref()
            .map(read_retry)
            .transpose()
            .map_err(unsupported)?;
        let session = session_persistence
            .as_ref()
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
        let backends = self.backends(index, backend_refs, &weights, &mut faults);
        let mut mirrored = Vec::new();
        for mirror in &mirrors {
            let found = self
                .backends
                .resolve_http(self.referrer, mirror.backend, self.cx);
            match found {
                Ok(backend) if mirror.numerator > 0 => mirrored.push(schema::Mirror {
                    backend,
                    numerator: mirror.numerator,
                    denominator: mirror.denominator,
                }),
                Ok(_) => {}
                Err(fault) => self.resolved.refuse(
                    fault.reason,
                    format!(
                        "rules[{index}].filters[{}].requestMirror.backendRef: {}",
                        mirror.index, fault.message
                    ),
                ),
            }
        }
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
            (None, None) if !servable => Action::Respond(500),
            (None, None) => Action::Forward(schema::Forward {
                backends,
                rewrite,
                mirrors: mirrored,
                request_timeout_ms,
                request_timeout_disabled,
                backend_timeout_ms,
                retry,
                session: session.map(|session| session.session),
            }),
        };
        Ok(CheckedRule {
            index,
            matches,
            action,
            request_headers,
            response_headers,
            cors,
            unsupported: (!faults.is_empty()).then(|| faults.join("; ")),
        })
    }

    fn matches(&mut self, specs: &[HttpMatch]) -> Result<Vec<Conditions>, String> {
        if specs.len() > 64 {
            return Err(format!(
                "matches has {} entries; at most 64 are allowed",
                specs.len()
            ));
        }
        if specs.is_empty() {
            return Ok(vec![Conditions::all()]);
        }
        specs
            .iter()
            .enumerate()
            .map(|(i, spec)| {
                matches::read(spec, self.regexes).map_err(|why| format!("matches[{i}].{why}"))
            })
            .collect()
    }

    fn backends(
        &mut self,
        index: usize,
        references: &'w [BackendRef],
        weights: &[u32],
        faults: &mut Vec<String>,
    ) -> Vec<schema::WeightedBackend> {
        let mut found = Vec::with_capacity(references.len());
        for (i, (reference, weight)) in references.iter().zip(weights).enumerate() {
            let resolved = self
                .backends
                .resolve_http(self.referrer, reference, self.cx);
            let modifiers = filters::read_backend(&reference.filters);
            let (backend, modifiers) = match (resolved, modifiers) {
                (Ok(backend), Ok(modifiers)) => (backend, modifiers),
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
                            format!("{at}.{message}; its share is answered with 500"),
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
}

fn read_weights(references: &[BackendRef]) -> Result<Vec<u32>, String> {
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

/// In milliseconds; 0 for none.
#[derive(Debug, Default, PartialEq, Eq)]
struct RuleTimeouts {
    request_ms: u64,
    /// `0s`, where nothing said would leave the proxy its own limits.
    request_disabled: bool,
    /// For one try.
    backend_ms: u64,
}

fn read_timeouts(spec: Option<&Timeouts>) -> Result<RuleTimeouts, String> {
    let Some(Timeouts {
        request,
        backend_request,
    }) = spec
    else {
        return Ok(RuleTimeouts::default());
    };
    let read = |field: &str, text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => durations::milliseconds(text)
            .map(Some)
            .map_err(|why| format!("timeouts.{field}: {why}")),
    };
    let whole = read("request", request)?;
    let one_try = read("backendRequest", backend_request)?;
    if let (Some(whole), Some(one_try)) = (whole, one_try)
        && whole > 0
        && one_try > whole
    {
        return Err(format!(
            "timeouts.backendRequest {:?} is longer than timeouts.request {:?}, which includes it",
            backend_request.as_deref().unwrap_or_default(),
            request.as_deref().unwrap_or_default()
        ));
    }
    Ok(RuleTimeouts {
        request_ms: whole.unwrap_or(0),
        request_disabled: whole == Some(0),
        backend_ms: one_try.unwrap_or(0),
    })
}

fn read_retry(spec: &Retry) -> Result<schema::Retry, String> {
    let Retry {
        codes,
        attempts,
        backoff,
    } = spec;
    let mut statuses = Vec::with_capacity(codes.len());
    for (i, code) in codes.iter().enumerate() {
        match u32::try_from(*code) {
            Ok(status @ 400..=599) => statuses.push(status),
            _ => {
                return Err(format!(
                    "retry.codes[{i}] {code} is out of range; expected 400 to 599"
                ));
            }
        }
    }
    statuses.sort_unstable();
    statuses.dedup();
    // Left to the implementation: one retry, as Envoy does.
    let attempts = attempts.unwrap_or(1);
    let attempts = u32::try_from(attempts)
        .ok()
        .filter(|attempts| *attempts > 0)
        .ok_or_else(|| format!("retry.attempts {attempts} is out of range; expected at least 1"))?;
    let backoff_ms = match backoff {
        None => 0,
        Some(text) => {
            durations::milliseconds(text).map_err(|why| format!("retry.backoff: {why}"))?
        }
    };
    Ok(schema::Retry {
        statuses,
        attempts,
        backoff_ms,
    })
}

/// Whether a rule's name may stand.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if names::is_dns_subdomain(name) {
        Ok(())
    } else {
        Err(format!(
            "name {name:?} is not a DNS name of a-z, 0-9, '-' and '.'"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts() {
        let read = |request: Option<&str>, backend: Option<&str>| {
            read_timeouts(Some(&Timeouts {
                request: request.map(str::to_owned),
                backend_request: backend.map(str::to_owned),
            }))
        };
        let timeouts = |request_ms, request_disabled, backend_ms| {
            Ok(RuleTimeouts {
                request_ms,
                request_disabled,
                backend_ms,
            })
        };
        assert_eq!(read_timeouts(None), timeouts(0, false, 0));
        assert_eq!(
            read(Some("10s"), Some("2s")),
            timeouts(10_000, false, 2_000)
        );
        assert_eq!(read(Some("0s"), Some("2s")), timeouts(0, true, 2_000));
        assert_eq!(read(Some("0h0ms"), None), timeouts(0, true, 0));
        assert_eq!(read(None, Some("2s")), timeouts(0, false, 2_000));
        assert!(read(Some("1s"), Some("2s")).is_err());
        assert!(read(Some("one"), None).is_err());
    }

    #[test]
    fn retries() {
        let spec = Retry {
            codes: vec![503, 500, 503],
            attempts: None,
            backoff: Some("100ms".to_owned()),
        };
        let read = read_retry(&spec).expect("valid");
        assert_eq!(
            (read.statuses, read.attempts, read.backoff_ms),
            (vec![500, 503], 1, 100)
        );
        assert!(
            read_retry(&Retry {
                codes: vec![399],
                ..Retry::default()
            })
            .is_err()
        );
        assert!(
            read_retry(&Retry {
                attempts: Some(0),
                ..Retry::default()
            })
            .is_err()
        );
    }
}
