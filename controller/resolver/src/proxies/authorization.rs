//! External authorization that HTTPProxies require.
//!
//! The root's authorization applies to all routes of its include tree. As in Contour, a route can
//! disable it, but not for a redirect or direct response. If a check is required but cannot be
//! made, the route responds with an error.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_proto::schema::external_auth::Protocol;
use sesame_proto::schema::{self, ContextValue, ExternalAuth, ExternalAuthGrpc, ExternalAuthHttp};

use super::details::Details;
use super::extension_services::{self, ReadExtension};
use super::roots::Root;
use super::rules::{ReadRoute, RouteFault};
use super::tree::Place;
use crate::backends::{PolicedBackend, Traffic};
use crate::filters::external_auth::read_http_fields;
use crate::ingresses::lookup::{LayeredLookup, RuleOwner};
use crate::syntax::limits::{self, MAX_AUTH_CONTEXT};
use sesame_kinds::api::{
    AccessPart, NamespacedName, ProxyAllowedHeader, ProxyAuthPolicy, ProxyAuthorization,
    ProxyAuthorizationBody, ProxyAuthorizationHttp, ProxyHost, ProxyRoute,
};
use sesame_kinds::world::Kind;

const TYPE: &str = "AuthError";

/// Contour's default body size limit, in bytes.
const BODY_BYTES: i64 = 1024;

type Context = BTreeMap<String, String>;

pub(super) struct HostAuthorization<'w> {
    root: String,
    policy: Option<&'w ProxyAuthPolicy>,
    check: Result<HostCheck<'w>, RouteFault>,
    /// The routes' distinct contexts. Each counts towards the few authorizations that a host may
    /// have.
    contexts: Vec<Context>,
    max_contexts: usize,
}

struct HostCheck<'w> {
    auth: ExternalAuth,
    policed: Vec<PolicedBackend<'w>>,
    warnings: Vec<RouteFault>,
}

impl<'w> HostAuthorization<'w> {
    /// Returns `None` if the root requires no authorization.
    pub(super) fn read(
        root: &Root<'w>,
        places: &[Place<'w>],
        lookup: &mut LayeredLookup<'_, 'w, '_>,
        details: &mut Details,
    ) -> Option<Self> {
        let ProxyHost {
            fqdn: _,
            tls,
            authorization,
            cors_policy: _,
            rate_limit_policy: _,
            jwt_providers: _,
            ip_allow_policy: _,
            ip_deny_policy: _,
        } = root.virtualhost;
        let spec = authorization.as_ref()?;
        let has_tls = tls.as_ref().is_some_and(|it| !it.passthrough);
        let check = if has_tls {
            read(spec, root, lookup)
        } else {
            let why = "needs tls.secretName, because credentials must not be sent without TLS";
            Err(("AuthNotPermitted", format!(" {why}")))
        };
        let check = check.map_err(|(reason, why)| ((TYPE, reason), format!("authorization{why}")));
        let mut host = Self {
            root: Kind::HttpProxy.named(root.name.clone()).to_string(),
            policy: spec.auth_policy.as_ref(),
            check,
            contexts: Vec::new(),
            max_contexts: 0,
        };
        let all = || places.iter().flat_map(|place| place.routes);
        // Checks without a context also count as one of the host's authorizations.
        let mut checked = all().filter(|route| !host.is_disabled(route));
        let without = checked.any(|route| host.context(route).is_empty());
        host.max_contexts = schema::Route::MAX_EXTERNAL_AUTHS - usize::from(without);
        for route in all() {
            if host.contexts.len() == host.max_contexts {
                break;
            }
            let context = host.context(route);
            let is_sent = !host.is_disabled(route) && !context.is_empty();
            if is_sent && !host.contexts.contains(&context) {
                host.contexts.push(context);
            }
        }
        host.report(&root.name, details);
        Some(host)
    }

    fn report(&self, root: &NamespacedName, details: &mut Details) {
        match &self.check {
            Ok(check) => {
                for (code, why) in &check.warnings {
                    details.warn(root, *code, why);
                }
            }
            Err((code, why)) => details.error(root, *code, why),
        }
    }

    fn asks_for_none(&self, route: &ProxyRoute) -> bool {
        let policy = route.auth_policy.as_ref().or(self.policy);
        policy.is_some_and(|it| it.disabled)
    }

    /// Contour also authorizes redirects and direct responses that disable authorization.
    fn is_disabled(&self, route: &ProxyRoute) -> bool {
        self.asks_for_none(route) && !route.services.is_empty()
    }

    /// The route's values replace the host's.
    fn context(&self, route: &ProxyRoute) -> Context {
        let policies = [self.policy, route.auth_policy.as_ref()];
        let contexts = policies.into_iter().flatten().map(|it| &it.context);
        let values = contexts.flatten();
        values
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// Returns `None` if the route needs no check.
    fn of_route(
        &self,
        route: &ProxyRoute,
    ) -> Option<Result<(ExternalAuth, &[PolicedBackend<'w>]), RouteFault>> {
        if self.is_disabled(route) {
            return None;
        }
        let HostCheck { auth, policed, .. } = match &self.check {
            Ok(check) => check,
            Err(fault) => return Some(Err(fault.clone())),
        };
        let context = self.context(route);
        let is_http = matches!(auth.protocol, Some(Protocol::Http(_)));
        let read = check_context("authPolicy.context", &context, is_http);
        let read = read.and_then(|()| {
            if context.is_empty() || self.contexts.contains(&context) {
                return Ok(());
            }
            let why = format!(
                "authPolicy.context: the routes of a virtual host may have at most {} different \
                 contexts",
                self.max_contexts
            );
            Err(("NotSupported", why))
        });
        let with_context = |()| {
            let values = context.into_iter();
            let values = values.map(|(name, value)| ContextValue { name, value });
            let auth = ExternalAuth {
                context: values.collect(),
                ..auth.clone()
            };
            (auth, policed.as_slice())
        };
        let fault = |(reason, why)| ((TYPE, reason), why);
        Some(read.map(with_context).map_err(fault))
    }
}

impl<'w> ReadRoute<'w> {
    /// Shows in explanations that the route opts out of a check of its root.
    pub(super) fn exempt_from(&mut self, root: &str, part: AccessPart) {
        let filters = self.rule.filters.take().unwrap_or_default();
        let mut filters = Arc::unwrap_or_clone(filters);
        filters.exempt_itself(format!("{root}/{}", part.as_str()));
        self.rule.filters = Some(Arc::new(filters));
    }

    pub(super) fn authorize(
        &mut self,
        host: Option<&HostAuthorization<'w>>,
        (index, route): (usize, &ProxyRoute),
    ) {
        let Some(host) = host else {
            return;
        };
        if host.asks_for_none(route) && route.services.is_empty() {
            let why = "authPolicy.disabled has no effect on a redirect or direct response";
            let code = ("SpecError", "IgnoredField");
            self.warnings.push((code, why.to_owned()));
        }
        match host.of_route(route) {
            None => self.exempt_from(&host.root, AccessPart::ExtAuth),
            Some(Ok((auth, policed))) => {
                self.rule.external_auth = Some(Box::new(auth));
                self.rule.protects = true;
                self.policed.extend(policed);
            }
            Some(Err(fault)) => self.refuse(index, fault),
        }
    }
}

/// Contour's reason, and a message that follows `authorization`.
type Fault = (&'static str, String);

fn read<'w>(
    spec: &'w ProxyAuthorization,
    root: &Root<'w>,
    lookup: &mut LayeredLookup<'_, 'w, '_>,
) -> Result<HostCheck<'w>, Fault> {
    let ProxyAuthorization {
        extension_ref,
        service_type,
        http_settings,
        auth_policy,
        response_timeout,
        fail_open,
        with_request_body,
    } = spec;
    let service_type = service_type.as_str();
    let (traffic, protocol) = protocol(service_type, http_settings.as_ref(), *with_request_body)?;
    if let Some(ProxyAuthPolicy { context, .. }) = auth_policy {
        let is_http = traffic == Traffic::Http;
        check_context(".authPolicy.context", context, is_http)?;
    }
    let body = with_request_body.map(body).transpose();
    let body = body.map_err(|why| ("RequestBodyNotValid", format!(".withRequestBody.{why}")))?;
    let (max_body_bytes, partial_body) = body.unwrap_or_default();
    let own_timeout = extension_services::timeout(".responseTimeout", response_timeout);
    let own_timeout = own_timeout.map_err(|why| ("AuthResponseTimeoutInvalid", why))?;
    let world = lookup.cx.world;
    let namespace = root.proxy.metadata.namespace.as_str();
    let found = extension_services::find(extension_ref, namespace, (world, &lookup.cx.grants));
    let extension = found.map_err(|(reason, why)| (reason, format!(".extensionRef: {why}")))?;
    let kind = Kind::ExtensionService;
    let owner = RuleOwner::of(kind, &extension.metadata);
    let at = format!(".extensionRef: {}", kind.named(extension.metadata.key()));
    let read = extension_services::read(
        extension,
        traffic,
        root.gateway,
        &mut lookup.rule_context(&owner),
    );
    let ReadExtension {
        backend,
        policed,
        timeout_ms,
        warnings,
    } = read.map_err(|(reason, why)| (reason, format!("{at}: {why}")))?;
    let auth = ExternalAuth {
        backend,
        protocol: Some(protocol),
        max_body_bytes,
        policy: Kind::HttpProxy.named(root.name.clone()).to_string(),
        context: Vec::new(),
        timeout_ms: if own_timeout == 0 {
            timeout_ms
        } else {
            own_timeout
        },
        fail_open: *fail_open,
        partial_body,
        no_response_headers: true,
        exempt_clients: None,
    };
    let ignored = |why| {
        let why = format!("authorization{at}: {why}");
        (("SpecError", "IgnoredField"), why)
    };
    Ok(HostCheck {
        auth,
        policed,
        warnings: warnings.into_iter().map(ignored).collect(),
    })
}

fn protocol(
    service_type: &str,
    settings: Option<&ProxyAuthorizationHttp>,
    body: Option<ProxyAuthorizationBody>,
) -> Result<(Traffic, Protocol), Fault> {
    match (service_type, settings) {
        ("" | "grpc", None) => Ok((Traffic::Grpc, Protocol::Grpc(grpc(body)))),
        ("http", settings) => Ok((Traffic::Http, Protocol::Http(http(settings)?))),
        ("" | "grpc", Some(_)) => {
            let why = ".httpSettings must not be set with serviceType grpc";
            Err(("HTTPSettingsNotValid", why.to_owned()))
        }
        (other, _) => {
            let why = format!(".serviceType {other:?} is not supported; expected grpc or http");
            Err(("ServiceTypeNotValid", why))
        }
    }
}

fn grpc(body: Option<ProxyAuthorizationBody>) -> ExternalAuthGrpc {
    ExternalAuthGrpc {
        request_headers: Vec::new(),
        peer_certificate: true,
        text_body: body.is_some_and(|it| !it.pack_as_bytes),
    }
}

fn http(settings: Option<&ProxyAuthorizationHttp>) -> Result<ExternalAuthHttp, Fault> {
    let default = ProxyAuthorizationHttp::default();
    let ProxyAuthorizationHttp {
        path_prefix,
        allowed_authorization_headers,
        allowed_upstream_headers,
    } = settings.unwrap_or(&default);
    let fields = [
        ".httpSettings.pathPrefix",
        ".httpSettings.allowedAuthorizationHeaders",
        ".httpSettings.allowedUpstreamHeaders",
    ];
    let [_, request, response] = fields;
    let request = names(request, allowed_authorization_headers)?;
    let response = names(response, allowed_upstream_headers)?;
    let read = read_http_fields(fields, path_prefix, &request, &response);
    read.map_err(|why| ("HTTPSettingsNotValid", why))
}

fn names(field: &str, list: &[ProxyAllowedHeader]) -> Result<Vec<String>, Fault> {
    let bad = |why| ("AuthBadAllowedHeader", why);
    let most = limits::MAX_AUTH_HEADERS;
    limits::entries(field, list.len(), 0..=most).map_err(bad)?;
    let names = list.iter().enumerate().map(|(i, header)| {
        let ProxyAllowedHeader {
            exact,
            prefix,
            suffix,
            contains,
            // Envoy's header names are in lower case.
            ignore_case: _,
        } = header;
        let others = [prefix, suffix, contains];
        if exact.is_empty() || others.iter().any(|it| !it.is_empty()) {
            let why = format!("{field}[{i}]: only exact is supported; set it, and nothing else");
            return Err(bad(why));
        }
        Ok(exact.clone())
    });
    names.collect()
}

/// Returns the maximum size, and true if the service receives partial bodies.
fn body(spec: ProxyAuthorizationBody) -> Result<(u32, bool), String> {
    let ProxyAuthorizationBody {
        max_request_bytes,
        allow_partial_message,
        pack_as_bytes: _,
    } = spec;
    let size = max_request_bytes.unwrap_or(BODY_BYTES);
    let most = limits::MAX_AUTH_BODY;
    match u32::try_from(size) {
        Ok(bytes @ 1..) if bytes <= most => Ok((bytes, allow_partial_message)),
        _ => Err(format!("maxRequestBytes {size}: expected 1 to {most}")),
    }
}

fn check_context(field: &str, context: &Context, is_http: bool) -> Result<(), Fault> {
    if is_http && !context.is_empty() {
        let why = format!("{field} must not be set with serviceType http");
        return Err(("AuthContextForHTTP", why));
    }
    let check = || {
        limits::entries(field, context.len(), 0..=MAX_AUTH_CONTEXT)?;
        for (name, value) in context {
            if name.is_empty() {
                return Err(format!("{field}: a name is empty"));
            }
            limits::max_bytes(
                &format!("{field}: a name"),
                name,
                limits::MAX_ATTRIBUTE_NAME,
            )?;
            let at = format!("{field} {name:?}");
            limits::max_bytes(&at, value, limits::MAX_ATTRIBUTE_VALUE)?;
        }
        Ok(())
    };
    check().map_err(|why| ("AuthContextNotValid", why))
}
