//! Converts routes of HTTPProxies to checked rules.
//!
//! If a route cannot be served as configured, its requests get an error. They never reach a less
//! specific route.

use sesame_proto::refusal;
use sesame_proto::schema::{self, Forward, PathModifier, path_modifier};

use super::answers::{direct_response, redirect};
use super::conditions::Inherited;
use super::connections::RouteConnections;
use super::details::DetailCode;
use super::forwarding::{internal_redirect, retries, timeouts};
use super::header_policies::{header_policy, response_policy, variables_without_value};
use super::{cookies, services};
use crate::backends::PolicedBackend;
use crate::routes::matches::RouteMatch;
use crate::routes::rules::{Action, CheckedRule, RuleContext};
use crate::syntax::limits::{self, MAX_MATCHES};
use crate::syntax::names;
use sesame_kinds::api::{ProxyHost, ProxyPathRewrite, ProxyRoute};

/// Contour's type and reason, and a message.
pub(super) type RouteFault = (DetailCode, String);

#[derive(Debug)]
pub(super) struct ReadRoute<'w> {
    pub(super) rule: CheckedRule,
    pub(super) errors: Vec<RouteFault>,
    pub(super) warnings: Vec<RouteFault>,
    pub(super) policed: Vec<PolicedBackend<'w>>,
}

pub(super) fn read<'w>(
    index: usize,
    route: &'w ProxyRoute,
    route_match: RouteMatch,
    unknown: Option<String>,
    cx: &mut RuleContext<'_, 'w, '_>,
) -> ReadRoute<'w> {
    let mut read = ReadRoute {
        rule: CheckedRule::refusing(index, vec![route_match]),
        errors: Vec::new(),
        warnings: Vec::new(),
        policed: Vec::new(),
    };
    let unknown = unknown.map(|why| (("SpecError", "UnknownField"), why));
    let outcome = match unknown {
        Some(fault) => Err(fault),
        None => read.action(route, cx),
    };
    match outcome {
        Ok(action) => {
            read.rule.action = action;
            read.rule.protects = false;
        }
        Err(fault) => read.fail(fault),
    }
    read
}

/// Returns true if the route or its host has checks or limits, or if the route denies requests.
/// Another route of the host may opt out of the host's checks.
pub(super) fn may_protect(route: &ProxyRoute, host: &ProxyHost) -> bool {
    let authorizes = route.auth_policy.as_ref().is_some_and(|it| !it.disabled);
    let verification = route.jwt_verification_policy.as_ref();
    authorizes
        || verification.is_some_and(|it| !it.disabled)
        || route.rate_limit_policy.is_some()
        || !route.ip_allow_policy.is_empty()
        || !route.ip_deny_policy.is_empty()
        || (route.direct_response_policy.as_ref()).is_some_and(|it| it.status_code >= 400)
        || host_protects(host)
}

fn host_protects(host: &ProxyHost) -> bool {
    host.authorization.is_some()
        || host.jwt_providers.iter().any(|it| it.default)
        || host.rate_limit_policy.is_some()
        || !host.ip_allow_policy.is_empty()
        || !host.ip_deny_policy.is_empty()
}

fn unknown_variables(route: &ProxyRoute) -> impl Iterator<Item = RouteFault> {
    let service_policies = route.services.iter().flat_map(|service| {
        let own = Some((service.name.as_str(), service.port));
        [
            (&service.request_headers_policy, own),
            (&service.response_headers_policy, own),
        ]
    });
    let route_policies = [
        (&route.request_headers_policy, None),
        (&route.response_headers_policy, None),
    ];
    let policies = route_policies.into_iter().chain(service_policies);
    let warnings =
        policies.flat_map(|(policy, service)| variables_without_value(policy.as_ref(), service));
    warnings.map(|why| (("SpecError", "IgnoredField"), why))
}

impl<'w> ReadRoute<'w> {
    fn fail(&mut self, (code, why): RouteFault) {
        let status = refusal::HTTP;
        let why = format!("{why}; its requests get {status}");
        self.errors.push((code, why));
    }

    pub(super) fn refuse(&mut self, index: usize, fault: RouteFault) {
        self.fail(fault);
        let matches = std::mem::take(&mut self.rule.matches);
        self.rule = CheckedRule::refusing(index, matches);
    }

    fn action(
        &mut self,
        route: &'w ProxyRoute,
        cx: &mut RuleContext<'_, 'w, '_>,
    ) -> Result<Action, RouteFault> {
        let ProxyRoute {
            conditions: _,
            services,
            enable_websockets: _,
            permit_insecure: _,
            auth_policy: _,
            timeout_policy: _,
            retry_policy: _,
            health_check_policy: _,
            load_balancer_policy: _,
            path_rewrite_policy: _,
            request_headers_policy: _,
            response_headers_policy: _,
            cookie_rewrite_policies,
            rate_limit_policy: _,
            request_redirect_policy,
            direct_response_policy,
            internal_redirect_policy: _,
            jwt_verification_policy: _,
            ip_allow_policy: _,
            ip_deny_policy: _,
        } = route;
        self.warnings
            .extend(cookies::check("", cookie_rewrite_policies)?);
        let prefix = self.rule.matches.first().and_then(Inherited::prefix_of);
        let prefix = prefix.map(str::to_owned);
        match (
            services.as_slice(),
            request_redirect_policy,
            direct_response_policy,
        ) {
            ([], Some(to), None) => redirect(to, prefix.is_some()).map(Action::Redirect),
            ([], None, Some(answer)) => direct_response(answer),
            ([_, ..], None, None) => self.forward(route, prefix.as_deref(), cx),
            _ => Err((
                ("RouteError", "RouteActionCountNotValid"),
                "a route must have exactly one of services, requestRedirectPolicy and \
                 directResponsePolicy"
                    .to_owned(),
            )),
        }
    }

    fn forward(
        &mut self,
        route: &'w ProxyRoute,
        prefix: Option<&str>,
        cx: &mut RuleContext<'_, 'w, '_>,
    ) -> Result<Action, RouteFault> {
        let mut forward = Forward::default();
        timeouts(route.timeout_policy.as_ref(), &mut forward)?;
        retries(
            route.retry_policy.as_ref(),
            &mut forward,
            &mut self.warnings,
        );
        let policy = route.internal_redirect_policy.as_ref();
        match policy.map(internal_redirect).transpose() {
            Ok(policy) => forward.internal_redirect = policy.map(Box::new),
            Err(why) => {
                let why = format!("internalRedirectPolicy has no effect: {why}");
                self.warnings.push((("SpecError", "IgnoredField"), why));
            }
        }
        let path = path_rewrite(route.path_rewrite_policy.as_ref(), prefix)?;
        let code = ("RouteError", "RequestHeadersPolicyInvalid");
        let read = header_policy(
            route.request_headers_policy.as_ref(),
            cx.referrer.namespace,
            None,
        );
        let (request, host) = read.map_err(|why| (code, why))?;
        let code = ("RouteError", "ResponseHeaderPolicyInvalid");
        let read = response_policy(
            route.response_headers_policy.as_ref(),
            cx.referrer.namespace,
            None,
        );
        let response = read.map_err(|why| (code, why))?;
        self.rule.request_headers = request.map(Box::new);
        self.rule.response_headers = response.map(Box::new);
        forward.rewrite = (path.is_some() || host.is_some()).then(|| {
            Box::new(schema::UrlRewrite {
                path,
                ..host.unwrap_or_default()
            })
        });
        self.warnings.extend(unknown_variables(route));
        let host = forward.rewrite.as_ref().map(|it| it.host.as_str());
        let timeouts = route.timeout_policy.as_ref();
        let mut connections = RouteConnections::read(timeouts, host.unwrap_or_default())?;
        let session = connections.balance(route, &mut self.warnings);
        let shares = services::read(&route.services, &connections, cx, self)?;
        if shares.backends.iter().all(|share| share.backend.is_empty()) {
            return Ok(Action::respond(refusal::UNAVAILABLE));
        }
        forward.backends = shares.backends;
        forward.mirrors = shares.mirrors;
        forward.session = session.map(Box::new);
        forward.unavailable = true;
        Ok(Action::Forward(forward))
    }
}

/// An entry for exactly this prefix takes precedence over an entry without a prefix.
fn path_rewrite(
    spec: Option<&ProxyPathRewrite>,
    prefix: Option<&str>,
) -> Result<Option<PathModifier>, RouteFault> {
    let Some(ProxyPathRewrite { replace_prefix }) = spec.filter(|it| !it.replace_prefix.is_empty())
    else {
        return Ok(None);
    };
    let fault = |reason, why: &str| Err((("PrefixReplaceError", reason), why.to_owned()));
    let Some(prefix) = prefix else {
        return fault(
            "MustHavePrefix",
            "pathRewritePolicy needs a prefix condition",
        );
    };
    if let Err(why) = limits::entries("replacePrefix", replace_prefix.len(), 0..=MAX_MATCHES) {
        return Err((("PrefixReplaceError", "ReplacementNotValid"), why));
    }
    for (at, entry) in replace_prefix.iter().enumerate() {
        let same = |other: &&sesame_kinds::api::ProxyReplacePrefix| other.prefix == entry.prefix;
        if replace_prefix.iter().take(at).any(|other| same(&other)) {
            let reason = if entry.prefix.is_empty() {
                "AmbiguousReplacement"
            } else {
                "DuplicateReplacement"
            };
            return fault(
                reason,
                "two replacements of pathRewritePolicy have the same prefix",
            );
        }
    }
    let own = replace_prefix.iter().find(|it| it.prefix == prefix);
    let found = own.or_else(|| replace_prefix.iter().find(|it| it.prefix.is_empty()));
    let Some(found) = found else {
        return Ok(None);
    };
    if let Err(why) = names::check_path(
        "pathRewritePolicy.replacePrefix.replacement",
        &found.replacement,
    ) {
        return Err((("PrefixReplaceError", "ReplacementNotValid"), why));
    }
    Ok(Some(PathModifier {
        kind: Some(path_modifier::Kind::Prefix(found.replacement.clone())),
    }))
}
