//! The verdict on each annotation of ingress-nginx.

use std::collections::BTreeMap;

use sesame_resolver::nginx_annotations::NginxAnnotation as A;
use sesame_resolver::nginx_annotations::{Effect, NginxProtocol, short_name};

use self::Fate::{Carried, Differs, Refused, Unneeded};
use super::super::fields::TakenField;
use super::IngressInput;
use super::policies::hashes_url;

const SNIPPET: Fate = Refused(
    "Sesame runs no code of ingress-nginx",
    "express the snippet with filters and policies",
);
const CLIENT_CERTIFICATES: Fate = Refused(
    "client certificates are validated for a whole Gateway, not for a host",
    "give the host its own Gateway, and set spec.tls.frontend there",
);
const BACKEND_TLS: Fate = Refused(
    "certificates of backends are verified with a BackendTLSPolicy, which needs a CA certificate",
    "write a BackendTLSPolicy for the Service, then accept the loss",
);
const FIREWALL: Fate = Refused(
    "Sesame has no web application firewall",
    "use one behind or in front of the Gateway",
);
const SERVICE_LIMIT: Fate = Refused(
    "Sesame limits the requests of a client, not this",
    "use limit-rps or limit-rpm, or a TrafficPolicy with scope Fleet",
);
const COOKIE_FLAGS: Fate = Refused(
    "the session cookie has no such attribute",
    "remove the annotation",
);
const REWRITES: Fate = Refused(
    "Sesame does not rewrite responses",
    "configure the application for its public URL",
);
const MEMORY: Fate = Unneeded("Envoy streams requests and responses, and needs no such setting");
const TRACING: Fate = Unneeded("traces are configured for the Gateway");
const ANY_CHECK: Fate = Refused(
    "requests must pass every check",
    "remove it if that is acceptable, or write an AccessPolicy without one of the checks",
);
const KEEPALIVE: Fate = Unneeded("connections to the service always stay open");
const NO_FASTCGI: Fate = Refused(
    "Sesame does not support FastCGI",
    "put an HTTP server in front",
);

/// Domains of annotations that affect no requests. They stay on the objects.
const HARMLESS: &[&str] = &[
    "app.kubernetes.io",
    "argocd.argoproj.io",
    "cert-manager.io",
    "acme.cert-manager.io",
    "external-dns.alpha.kubernetes.io",
    "helm.sh",
    "kubectl.kubernetes.io",
    "kubernetes.io",
    "meta.helm.sh",
];

/// Returns true for annotations without a domain, too.
pub(super) fn is_harmless(key: &str) -> bool {
    key.split_once('/')
        .is_none_or(|(domain, _)| HARMLESS.contains(&domain))
}

/// Records the verdicts on annotations that ingress-nginx does not read by default.
pub(super) fn close_foreign(fields: BTreeMap<String, TakenField>) {
    for (key, field) in fields {
        let name = key.rsplit('/').next().unwrap_or_default();
        let tunes = |it: A| it.effect() == Effect::Tunes;
        if A::find(name).is_none_or(tunes) {
            field.unneeded("not carried: ingress-nginx does not read it");
        } else {
            field.refuse(
                "not carried: ingress-nginx might read it with another prefix",
                "use the prefix nginx.ingress.kubernetes.io, or remove it",
            );
        }
    }
}

/// What becomes of an annotation with a valid value.
#[derive(Clone, Copy)]
enum Fate {
    Carried(&'static str),
    Differs(&'static str, &'static str),
    Unneeded(&'static str),
    Refused(&'static str, &'static str),
}

/// Records the verdicts on all annotations that are left.
pub(super) fn close(input: &mut IngressInput) {
    for (key, field) in std::mem::take(&mut input.annotations) {
        let name = short_name(&key).unwrap_or_default();
        let Some(annotation) = A::find(name) else {
            // An unknown annotation might protect something.
            field.refuse("ingress-nginx has no such annotation", "remove it");
            continue;
        };
        let field = field.protecting(annotation.effect() != Effect::Tunes);
        if let Some(why) = input.reading.faults.get(name) {
            // Requests for an alias would reach a wider host, which may lack checks.
            let protects = annotation.effect() != Effect::Tunes || annotation == A::ServerAlias;
            field.protecting(protects).refuse(why, "correct the value");
        } else {
            let fate = match annotation {
                A::Satisfy if field.as_str() != "all" => ANY_CHECK,
                annotation if is_off(annotation, field.as_str()) => Unneeded("it is off"),
                annotation => fate(annotation, input),
            };
            record(field, fate);
        }
    }
}

/// Returns true if the value is the same as no annotation.
fn is_off(annotation: A, value: &str) -> bool {
    match annotation {
        A::AuthSnippet | A::ConfigurationSnippet | A::ServerSnippet | A::StreamSnippet => {
            value.trim().is_empty()
        }
        A::AuthTlsVerifyClient => value == "off",
        A::EnableGlobalAuth => value == "false",
        A::LimitConnections => value == "0",
        _ => false,
    }
}

fn record(field: TakenField, fate: Fate) {
    match fate {
        Carried(to) => drop(field.carry(to)),
        Differs(to, difference) => drop(field.differ(to, difference)),
        Unneeded(reason) => field.unneeded(reason),
        Refused(reason, remedy) => field.refuse(reason, remedy),
    }
}

/// Returns the fate of an annotation whose value resolution accepts. References to other objects
/// have their verdicts already.
#[allow(clippy::too_many_lines, reason = "one line for each annotation")]
fn fate(annotation: A, input: &IngressInput) -> Fate {
    let reading = &input.reading;
    let with = |is_set: bool, fate: Fate, without: &'static str| {
        if is_set { fate } else { Unneeded(without) }
    };
    let cors = |to| {
        with(
            reading.cors.is_some(),
            Carried(to),
            "enable-cors is not true",
        )
    };
    let session = |to| {
        with(
            reading.session.is_some(),
            Carried(to),
            "there is no affinity",
        )
    };
    match annotation {
        A::RewriteTarget => Carried("HTTPRoute rules.filters"),
        A::UseRegex => Differs(
            "HTTPRoute rules.matches",
            "expressions apply to this Ingress only, not to all paths of the host",
        ),
        A::AppRoot | A::PermanentRedirect | A::TemporalRedirect => {
            Carried("HTTPRoute rules.filters.requestRedirect")
        }
        A::PermanentRedirectCode | A::TemporalRedirectCode => with(
            reading.redirect.is_some(),
            Carried("HTTPRoute rules.filters.requestRedirect"),
            "the Ingress has no redirect",
        ),
        A::SslRedirect | A::ForceSslRedirect | A::FromToWwwRedirect => Carried("HTTPRoute rules"),
        A::ServerAlias => Carried("HTTPRoute hostnames"),
        A::ProxyReadTimeout | A::ProxySendTimeout => Differs(
            "TrafficPolicy timeouts.streamIdle",
            "requests may be idle for the longer of the two timeouts",
        ),
        A::ProxyConnectTimeout => Carried("BackendPolicy connection.timeout"),
        A::ProxyNextUpstream | A::ProxyNextUpstreamTries => Differs(
            "TrafficPolicy retry",
            "a request is retried if no backend processed it; after a status, only with \
             non_idempotent",
        ),
        A::ProxyNextUpstreamTimeout => Refused("retries have no common timeout", "remove it"),
        A::ProxyBodySize => with(
            reading.max_body_bytes > 0,
            Differs(
                "TrafficPolicy requestBody.maxSize",
                "each request is buffered until it is complete",
            ),
            "0 means no limit",
        ),
        A::LimitRps | A::LimitRpm | A::LimitBurstMultiplier => with(
            !reading.limits.is_empty(),
            Differs(
                "TrafficPolicy rateLimits",
                "requests beyond the limit get 429, not 503; each listener port counts separately",
            ),
            "there is no limit",
        ),
        A::LimitConnections
        | A::LimitAllowlist
        | A::LimitWhitelist
        | A::GlobalRateLimit
        | A::GlobalRateLimitIgnoredCidrs
        | A::GlobalRateLimitKey
        | A::GlobalRateLimitWindow => SERVICE_LIMIT,
        A::LimitRate | A::LimitRateAfter => Refused(
            "bandwidth is limited for all requests of a policy, not for each connection",
            "use bandwidth of a TrafficPolicy",
        ),
        A::WhitelistSourceRange if input.has_newer_list => {
            Unneeded("allowlist-source-range takes precedence, as in ingress-nginx")
        }
        A::AllowlistSourceRange | A::WhitelistSourceRange => Carried("AccessPolicy ipFilter.allow"),
        A::DenylistSourceRange => Carried("AccessPolicy ipFilter.deny"),
        A::EnableCors => cors("HTTPRoute rules.filters.cors"),
        A::CorsAllowCredentials => cors("HTTPRoute rules.filters.cors.allowCredentials"),
        A::CorsAllowHeaders => cors("HTTPRoute rules.filters.cors.allowHeaders"),
        A::CorsAllowMethods => cors("HTTPRoute rules.filters.cors.allowMethods"),
        A::CorsAllowOrigin => cors("HTTPRoute rules.filters.cors.allowOrigins"),
        A::CorsExposeHeaders => cors("HTTPRoute rules.filters.cors.exposeHeaders"),
        A::CorsMaxAge => cors("HTTPRoute rules.filters.cors.maxAge"),
        A::Affinity => Differs(
            "HTTPRoute rules.sessionPersistence",
            "clients get new sessions, with other cookie values",
        ),
        A::AffinityMode => Unneeded("sessions are always persistent"),
        A::AffinityCanaryBehavior => Refused("a canary has its own sessions", "remove it"),
        A::SessionCookieName | A::SessionCookiePath => {
            session("HTTPRoute rules.sessionPersistence.cookie")
        }
        A::SessionCookieMaxAge | A::SessionCookieExpires => {
            session("HTTPRoute rules.sessionPersistence.absoluteTimeout")
        }
        A::SessionCookieChangeOnFailure
        | A::SessionCookieConditionalSamesite
        | A::SessionCookieDomain
        | A::SessionCookieSamesite
        | A::SessionCookieSecure => COOKIE_FLAGS,
        A::UpstreamHashBy if reading.load_balancer.as_ref().is_some_and(hashes_url) => Refused(
            "Sesame hashes headers, cookies, query parameters and client addresses",
            "hash one of these",
        ),
        A::UpstreamHashBy => Differs(
            "BackendPolicy loadBalancer.hash",
            "it applies to all routes to the Service",
        ),
        A::UpstreamHashBySubset | A::UpstreamHashBySubsetSize => {
            Refused("a hash selects one endpoint", "remove it")
        }
        A::LoadBalance => with(
            reading.load_balancer.is_some(),
            Differs(
                "BackendPolicy loadBalancer.type",
                "it applies to all routes to the Service; ewma becomes LeastRequest",
            ),
            "round_robin is the default",
        ),
        A::ServiceUpstream => Unneeded("requests go to endpoints, also after these change"),
        A::BackendProtocol => match reading.protocol {
            NginxProtocol::Http => Unneeded("HTTP is the default"),
            NginxProtocol::Grpc => Differs(
                "HTTPRoute rules.backendRefs",
                "set appProtocol: kubernetes.io/h2c on the Service's port, which selects the \
                 protocol",
            ),
            NginxProtocol::Tls => BACKEND_TLS,
        },
        A::ProxySslCiphers
        | A::ProxySslName
        | A::ProxySslProtocols
        | A::ProxySslServerName
        | A::ProxySslVerify
        | A::ProxySslVerifyDepth => BACKEND_TLS,
        A::ProxySslSecret => Refused(
            "the Gateway has one certificate for all backends",
            "set spec.tls.backend of the Gateway",
        ),
        A::UpstreamVhost => Carried("HTTPRoute rules.filters.urlRewrite.hostname"),
        A::XForwardedPrefix => Carried("HTTPRoute rules.filters.requestHeaderModifier"),
        A::MirrorRequestBody => Unneeded("mirrored requests have the same body"),
        A::MirrorHost => Refused("mirrored requests keep their host", "remove it"),
        A::AuthType
        | A::AuthSecret
        | A::AuthSecretType
        | A::AuthUrl
        | A::MirrorTarget
        | A::CustomHeaders => Unneeded("another annotation that it needs is missing"),
        A::AuthRealm => Unneeded("browsers show the URL"),
        A::AuthResponseHeaders => Unneeded("there is no auth-url"),
        A::AuthMethod => with(
            input.has_auth_url,
            Refused(
                "the service gets the client's method",
                "let the service check requests with any method, then accept the loss",
            ),
            "there is no auth-url",
        ),
        A::AuthSignin | A::AuthSigninRedirectParam => Refused(
            "clients get the service's response, such as 401, instead of a redirect",
            "let the service redirect, or use oidc of an AccessPolicy",
        ),
        A::AuthCacheDuration | A::AuthCacheKey => Unneeded("the service checks every request"),
        A::AuthAlwaysSetCookie => Unneeded("clients always get the service's cookies"),
        A::AuthKeepalive
        | A::AuthKeepaliveRequests
        | A::AuthKeepaliveShareVars
        | A::AuthKeepaliveTimeout => KEEPALIVE,
        A::AuthProxySetHeaders => Refused(
            "the service gets the client's headers only",
            "let the service do without these headers, then accept the loss",
        ),
        A::EnableGlobalAuth => Refused(
            "the global service is in ingress-nginx's ConfigMap, which is not converted",
            "write an AccessPolicy for the Gateway, then accept the loss",
        ),
        A::Satisfy => Unneeded("requests must always pass every check"),
        A::AuthTlsErrorPage
        | A::AuthTlsMatchCn
        | A::AuthTlsPassCertificate
        | A::AuthTlsSecret
        | A::AuthTlsVerifyClient
        | A::AuthTlsVerifyDepth => CLIENT_CERTIFICATES,
        A::AuthSnippet | A::ConfigurationSnippet | A::ServerSnippet | A::StreamSnippet => SNIPPET,
        A::EnableModsecurity
        | A::EnableOwaspCoreRules
        | A::ModsecuritySnippet
        | A::ModsecurityTransactionId => FIREWALL,
        A::Canary
        | A::CanaryByCookie
        | A::CanaryByHeader
        | A::CanaryByHeaderPattern
        | A::CanaryByHeaderValue
        | A::CanaryWeight
        | A::CanaryWeightTotal => Unneeded("the Ingress is not a canary"),
        A::CustomHttpErrors => Refused(
            "responses do not come from another backend",
            "use errorPages of a TrafficPolicy",
        ),
        A::DefaultBackend => Refused(
            "routes have no backend for Services without endpoints",
            "keep the Ingress, or use errorPages of a TrafficPolicy",
        ),
        A::ProxyCookieDomain | A::ProxyCookiePath | A::ProxyRedirectFrom | A::ProxyRedirectTo => {
            REWRITES
        }
        A::SslPassthrough => Refused(
            "connections are passed on by a TLSRoute, not by an HTTPRoute",
            "write a listener with mode Passthrough and a TLSRoute",
        ),
        A::SslCiphers | A::SslPreferServerCiphers => Refused(
            "cipher suites belong to a listener",
            "set tls.options of the listener",
        ),
        A::ConnectionProxyHeader | A::ProxyHttpVersion => {
            Unneeded("Envoy manages connections to backends itself")
        }
        A::ClientBodyBufferSize
        | A::ProxyBufferSize
        | A::ProxyBuffering
        | A::ProxyBuffersNumber
        | A::ProxyBusyBuffersSize
        | A::ProxyMaxTempFileSize
        | A::ProxyRequestBuffering => MEMORY,
        A::EnableOpentelemetry
        | A::EnableOpentracing
        | A::OpentelemetryOperationName
        | A::OpentelemetryTrustIncomingSpan => TRACING,
        A::EnableAccessLog | A::EnableRewriteLog => {
            Unneeded("the access log is configured for the Gateway")
        }
        A::FastcgiIndex | A::FastcgiParamsConfigmap => NO_FASTCGI,
        A::DisableProxyInterceptErrors => Unneeded("responses are never replaced by default"),
        A::Http2PushPreload => Unneeded("browsers no longer support it"),
        A::PreserveTrailingSlash | A::RelativeRedirects | A::UsePortInRedirects => {
            Unneeded("it affects only redirects that Sesame does not send")
        }
    }
}
