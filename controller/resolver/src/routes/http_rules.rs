//! Reads HTTPRoute rules: matches, timeouts and retries.

use sesame_proto::schema;
use sesame_proto::schema::path_match::Kind as PathKind;

use super::matches::{self, RouteMatch};
use super::request_rules::{Forwarding, RequestRule, RequestTimeouts};
use super::rules::{CheckedRule, RouteRule, RuleContext, RuleOutcome, Rules};
use crate::filters::rewrites::BackendRewrites;
use crate::filters::route_filter::FilterScope;
use crate::filters::{self, RuleFilters};
use crate::syntax::durations;
use sesame_kinds::api::{BackendRef, HttpMatch, HttpRule, Retry, Timeouts};
use sesame_kinds::status::{Grounds, unsupported};
use sesame_kinds::world::Kind;

impl RouteRule for HttpRule {
    type Checked = CheckedRule;

    const DEFAULT: &'static [Self] = &[Self {
        name: None,
        matches: Vec::new(),
        filters: Vec::new(),
        backend_refs: Vec::new(),
        timeouts: None,
        retry: None,
        session_persistence: None,
    }];

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// A rule without matches gets a default match.
    fn matches(&self) -> usize {
        self.matches.len().max(1)
    }

    fn protects(&self) -> bool {
        filters::protect(&self.filters, &self.backend_refs)
    }

    fn check<'w>(
        &'w self,
        index: usize,
        unknown: Option<String>,
        cx: &mut RuleContext<'_, 'w, '_>,
    ) -> Result<RuleOutcome<'w, CheckedRule>, Grounds> {
        let Self {
            name: _,
            matches,
            filters,
            backend_refs,
            timeouts,
            retry,
            session_persistence,
        } = self;
        let read = |spec: &HttpMatch| matches::read(spec, cx.regexes);
        let matches = matches::read_all(matches, RouteMatch::all(), read).map_err(unsupported)?;
        let one_prefix = matches!(
            matches.as_slice(),
            [RouteMatch {
                path: PathKind::Prefix(_),
                ..
            }]
        );
        let scope = FilterScope {
            world: cx.cx.world,
            options: cx.cx.options,
            namespace: cx.referrer.namespace,
            regexes: cx.regexes,
            filters: cx.cx.filters,
            grpc: false,
        };
        let filters = filters::read(filters, one_prefix, scope)?;
        check_unforwarded(&filters, backend_refs).map_err(unsupported)?;
        let backend_rewrites = match filters.own.transcoder {
            // The path is the gRPC method's.
            Some(_) => BackendRewrites::Unsupported,
            None => BackendRewrites::Supported { one_prefix },
        };
        let timeouts = read_timeouts(timeouts.as_deref()).map_err(unsupported)?;
        // Since release 1.7, the API forbids retrying requests that a backend may have processed.
        let unprocessed_only = cx.cx.world.definitions.since(Kind::HttpRoute, 7);
        let most = schema::Retry::MAX_ATTEMPTS;
        if let Some(asked) = retry.as_deref().and_then(|spec| spec.attempts)
            && i64::from(asked) > i64::from(most)
        {
            let message = format!(
                "rules[{index}].retry.attempts {asked} is more than {most}; a request is retried at most {most} times"
            );
            cx.cx.problems.add(cx.object.clone(), message);
        }
        let retry = retry
            .as_deref()
            .map(|spec| read_retry(spec, unprocessed_only))
            .transpose()
            .map_err(unsupported)?;
        cx.requests(RequestRule {
            index,
            name: RouteRule::name(self),
            matches,
            filters,
            protects: self.protects() || unknown.is_some(),
            unknown,
            forwarding: Forwarding {
                backend_refs,
                backend_rewrites,
                session_persistence: session_persistence.as_deref(),
                timeouts,
                retry,
            },
        })
    }

    fn refusing(
        &self,
        index: usize,
        withheld: bool,
        cx: &mut RuleContext<'_, '_, '_>,
    ) -> Option<CheckedRule> {
        (withheld || self.protects()).then(|| {
            let read = |spec: &HttpMatch| matches::widened(spec, cx.regexes);
            let matches = matches::read_widened(&self.matches, RouteMatch::all(), read);
            CheckedRule::refusing(index, matches)
        })
    }

    fn refusing_all(_cx: &RuleContext<'_, '_, '_>) -> CheckedRule {
        CheckedRule::refusing(0, vec![RouteMatch::all()])
    }

    fn all(checked: Vec<CheckedRule>) -> Rules {
        Rules::Requests(checked)
    }
}

/// Fails if a rule has backends but its filters respond to all requests.
fn check_unforwarded(
    filters: &RuleFilters<'_>,
    backend_refs: &[BackendRef],
) -> Result<(), &'static str> {
    if backend_refs.is_empty() || filters.maintenance.is_some() {
        return Ok(());
    }
    if filters.redirect.is_some() {
        return Err("backendRefs must be empty with a RequestRedirect filter");
    }
    if filters.response.is_some() {
        return Err("backendRefs must be empty with a RouteFilter that has directResponse");
    }
    Ok(())
}

fn read_timeouts(spec: Option<&Timeouts>) -> Result<RequestTimeouts, String> {
    let Some(Timeouts {
        request,
        backend_request,
    }) = spec
    else {
        return Ok(RequestTimeouts::default());
    };
    let whole = durations::read("timeouts.request", request.as_deref())?;
    let one_try = durations::read("timeouts.backendRequest", backend_request.as_deref())?;
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
    Ok(RequestTimeouts {
        request_ms: whole.unwrap_or(0),
        request_disabled: whole == Some(0),
        backend_ms: one_try.unwrap_or(0),
    })
}

fn read_retry(spec: &Retry, unprocessed_only: bool) -> Result<schema::Retry, String> {
    let Retry {
        codes,
        attempts,
        backoff,
    } = spec;
    let mut statuses = Vec::with_capacity(codes.len());
    for (i, code) in codes.iter().enumerate() {
        let Ok(status @ 400..=599) = u32::try_from(*code) else {
            return Err(format!(
                "retry.codes[{i}] {code} is out of range; expected 400 to 599"
            ));
        };
        statuses.push(status);
    }
    statuses.sort_unstable();
    statuses.dedup();
    // One retry is also the default in Envoy and in newer releases of the API.
    let attempts = attempts.unwrap_or(1);
    let Ok(attempts) = u32::try_from(attempts) else {
        return Err(format!(
            "retry.attempts {attempts} is out of range; expected at least 0"
        ));
    };
    // Cap the number instead of rejecting it, because the API has no maximum.
    let attempts = attempts.min(schema::Retry::MAX_ATTEMPTS);
    let backoff_ms = durations::read("retry.backoff", backoff.as_deref())?.unwrap_or(0);
    Ok(schema::Retry {
        statuses,
        attempts,
        backoff_ms,
        unprocessed_only,
        conditions: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts() {
        let read = |request: Option<&str>, backend: Option<&str>| {
            read_timeouts(Some(&Timeouts {
                request: request.map(Into::into),
                backend_request: backend.map(Into::into),
            }))
        };
        let timeouts = |request_ms, request_disabled, backend_ms| {
            Ok(RequestTimeouts {
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
            backoff: Some("100ms".into()),
        };
        let read = read_retry(&spec, false).expect("valid");
        assert_eq!(
            (read.statuses, read.attempts, read.backoff_ms),
            (vec![500, 503], 1, 100)
        );
        assert!(
            read_retry(
                &Retry {
                    codes: vec![399],
                    ..Retry::default()
                },
                false
            )
            .is_err()
        );
        assert!(
            read_retry(
                &Retry {
                    attempts: Some(-1),
                    ..Retry::default()
                },
                false
            )
            .is_err()
        );
        let many = |attempts| Retry {
            attempts: Some(attempts),
            ..Retry::default()
        };
        assert_eq!(read_retry(&many(15), true).expect("valid").attempts, 15);
        assert_eq!(read_retry(&many(100), true).expect("valid").attempts, 15);
        let none = Retry {
            attempts: Some(0),
            ..Retry::default()
        };
        let none = read_retry(&none, true).expect("valid");
        assert_eq!((none.attempts, none.unprocessed_only), (0, true));
    }
}
