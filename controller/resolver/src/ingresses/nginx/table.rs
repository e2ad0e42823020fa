//! All annotations of ingress-nginx, whether Sesame reads them, and their effects. `convert` gives
//! each a verdict.

use self::Effect::{Guards, Shapes, Tunes};
use self::Use::{Ignored, Read, Unread};

/// Whether Sesame reads an annotation of an Ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Read,
    /// Known, but without effect.
    Ignored,
    /// Reported as unsupported, and withholds the Ingress if it guards something.
    Unread,
}

/// Effect of an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Restricts clients or requests. Without it, no request may pass.
    Guards,
    /// Matches or changes requests. An invalid value must not be guessed.
    Shapes,
    /// Performance or cosmetics.
    Tunes,
}

macro_rules! annotations {
    ($($variant:ident = $name:literal, $use:ident, $effect:ident;)*) => {
        /// An annotation of ingress-nginx.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum NginxAnnotation {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl NginxAnnotation {
            /// All annotations.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the name without the prefix.
            pub fn as_str(self) -> &'static str {
                self.row().0
            }

            fn row(self) -> (&'static str, Use, Effect) {
                match self {
                    $(Self::$variant => ($name, $use, $effect),)*
                }
            }
        }
    };
}

annotations! {
    Affinity = "affinity", Read, Tunes;
    AffinityCanaryBehavior = "affinity-canary-behavior", Unread, Tunes;
    AffinityMode = "affinity-mode", Ignored, Tunes;
    AllowlistSourceRange = "allowlist-source-range", Read, Guards;
    AppRoot = "app-root", Read, Shapes;
    AuthAlwaysSetCookie = "auth-always-set-cookie", Ignored, Tunes;
    AuthCacheDuration = "auth-cache-duration", Ignored, Tunes;
    AuthCacheKey = "auth-cache-key", Ignored, Tunes;
    AuthKeepalive = "auth-keepalive", Ignored, Tunes;
    AuthKeepaliveRequests = "auth-keepalive-requests", Ignored, Tunes;
    AuthKeepaliveShareVars = "auth-keepalive-share-vars", Ignored, Tunes;
    AuthKeepaliveTimeout = "auth-keepalive-timeout", Ignored, Tunes;
    AuthMethod = "auth-method", Read, Guards;
    AuthProxySetHeaders = "auth-proxy-set-headers", Unread, Guards;
    AuthRealm = "auth-realm", Ignored, Tunes;
    AuthResponseHeaders = "auth-response-headers", Read, Guards;
    AuthSecret = "auth-secret", Read, Guards;
    AuthSecretType = "auth-secret-type", Read, Guards;
    AuthSignin = "auth-signin", Read, Tunes;
    AuthSigninRedirectParam = "auth-signin-redirect-param", Read, Tunes;
    AuthSnippet = "auth-snippet", Unread, Guards;
    AuthTlsErrorPage = "auth-tls-error-page", Ignored, Guards;
    AuthTlsMatchCn = "auth-tls-match-cn", Unread, Guards;
    AuthTlsPassCertificate = "auth-tls-pass-certificate-to-upstream", Read, Guards;
    AuthTlsSecret = "auth-tls-secret", Read, Guards;
    AuthTlsVerifyClient = "auth-tls-verify-client", Read, Guards;
    AuthTlsVerifyDepth = "auth-tls-verify-depth", Ignored, Guards;
    AuthType = "auth-type", Read, Guards;
    AuthUrl = "auth-url", Read, Guards;
    BackendProtocol = "backend-protocol", Read, Shapes;
    Canary = "canary", Read, Shapes;
    CanaryByCookie = "canary-by-cookie", Read, Tunes;
    CanaryByHeader = "canary-by-header", Read, Tunes;
    CanaryByHeaderPattern = "canary-by-header-pattern", Read, Tunes;
    CanaryByHeaderValue = "canary-by-header-value", Read, Tunes;
    CanaryWeight = "canary-weight", Read, Tunes;
    CanaryWeightTotal = "canary-weight-total", Read, Tunes;
    ClientBodyBufferSize = "client-body-buffer-size", Ignored, Tunes;
    ConfigurationSnippet = "configuration-snippet", Unread, Guards;
    ConnectionProxyHeader = "connection-proxy-header", Unread, Tunes;
    CorsAllowCredentials = "cors-allow-credentials", Read, Tunes;
    CorsAllowHeaders = "cors-allow-headers", Read, Tunes;
    CorsAllowMethods = "cors-allow-methods", Read, Tunes;
    CorsAllowOrigin = "cors-allow-origin", Read, Tunes;
    CorsExposeHeaders = "cors-expose-headers", Read, Tunes;
    CorsMaxAge = "cors-max-age", Read, Tunes;
    CustomHeaders = "custom-headers", Read, Tunes;
    CustomHttpErrors = "custom-http-errors", Ignored, Tunes;
    DefaultBackend = "default-backend", Read, Tunes;
    DenylistSourceRange = "denylist-source-range", Read, Guards;
    DisableProxyInterceptErrors = "disable-proxy-intercept-errors", Unread, Tunes;
    EnableAccessLog = "enable-access-log", Unread, Tunes;
    EnableCors = "enable-cors", Read, Tunes;
    EnableGlobalAuth = "enable-global-auth", Unread, Guards;
    EnableModsecurity = "enable-modsecurity", Unread, Guards;
    EnableOpentelemetry = "enable-opentelemetry", Unread, Tunes;
    EnableOpentracing = "enable-opentracing", Unread, Tunes;
    EnableOwaspCoreRules = "enable-owasp-core-rules", Unread, Guards;
    EnableRewriteLog = "enable-rewrite-log", Unread, Tunes;
    FastcgiIndex = "fastcgi-index", Unread, Tunes;
    FastcgiParamsConfigmap = "fastcgi-params-configmap", Unread, Tunes;
    ForceSslRedirect = "force-ssl-redirect", Read, Shapes;
    FromToWwwRedirect = "from-to-www-redirect", Read, Tunes;
    GlobalRateLimit = "global-rate-limit", Unread, Guards;
    GlobalRateLimitIgnoredCidrs = "global-rate-limit-ignored-cidrs", Unread, Guards;
    GlobalRateLimitKey = "global-rate-limit-key", Unread, Guards;
    GlobalRateLimitWindow = "global-rate-limit-window", Unread, Guards;
    Http2PushPreload = "http2-push-preload", Unread, Tunes;
    LimitAllowlist = "limit-allowlist", Unread, Guards;
    LimitBurstMultiplier = "limit-burst-multiplier", Read, Guards;
    LimitConnections = "limit-connections", Unread, Guards;
    LimitRate = "limit-rate", Unread, Tunes;
    LimitRateAfter = "limit-rate-after", Unread, Tunes;
    LimitRpm = "limit-rpm", Read, Guards;
    LimitRps = "limit-rps", Read, Guards;
    LimitWhitelist = "limit-whitelist", Unread, Guards;
    LoadBalance = "load-balance", Read, Tunes;
    MirrorHost = "mirror-host", Unread, Tunes;
    MirrorRequestBody = "mirror-request-body", Read, Tunes;
    MirrorTarget = "mirror-target", Read, Tunes;
    ModsecuritySnippet = "modsecurity-snippet", Unread, Guards;
    ModsecurityTransactionId = "modsecurity-transaction-id", Unread, Guards;
    OpentelemetryOperationName = "opentelemetry-operation-name", Unread, Tunes;
    OpentelemetryTrustIncomingSpan = "opentelemetry-trust-incoming-span", Unread, Tunes;
    PermanentRedirect = "permanent-redirect", Read, Shapes;
    PermanentRedirectCode = "permanent-redirect-code", Read, Tunes;
    PreserveTrailingSlash = "preserve-trailing-slash", Unread, Tunes;
    ProxyBodySize = "proxy-body-size", Read, Shapes;
    ProxyBufferSize = "proxy-buffer-size", Ignored, Tunes;
    ProxyBuffering = "proxy-buffering", Ignored, Tunes;
    ProxyBuffersNumber = "proxy-buffers-number", Ignored, Tunes;
    ProxyBusyBuffersSize = "proxy-busy-buffers-size", Unread, Tunes;
    ProxyConnectTimeout = "proxy-connect-timeout", Read, Tunes;
    ProxyCookieDomain = "proxy-cookie-domain", Unread, Tunes;
    ProxyCookiePath = "proxy-cookie-path", Unread, Tunes;
    ProxyHttpVersion = "proxy-http-version", Unread, Tunes;
    ProxyMaxTempFileSize = "proxy-max-temp-file-size", Unread, Tunes;
    ProxyNextUpstream = "proxy-next-upstream", Read, Tunes;
    ProxyNextUpstreamTimeout = "proxy-next-upstream-timeout", Unread, Tunes;
    ProxyNextUpstreamTries = "proxy-next-upstream-tries", Read, Tunes;
    ProxyReadTimeout = "proxy-read-timeout", Read, Tunes;
    ProxyRedirectFrom = "proxy-redirect-from", Unread, Tunes;
    ProxyRedirectTo = "proxy-redirect-to", Unread, Tunes;
    ProxyRequestBuffering = "proxy-request-buffering", Ignored, Tunes;
    ProxySendTimeout = "proxy-send-timeout", Read, Tunes;
    ProxySslCiphers = "proxy-ssl-ciphers", Unread, Tunes;
    ProxySslName = "proxy-ssl-name", Unread, Tunes;
    ProxySslProtocols = "proxy-ssl-protocols", Unread, Tunes;
    ProxySslSecret = "proxy-ssl-secret", Unread, Tunes;
    ProxySslServerName = "proxy-ssl-server-name", Unread, Tunes;
    ProxySslVerify = "proxy-ssl-verify", Unread, Guards;
    ProxySslVerifyDepth = "proxy-ssl-verify-depth", Unread, Guards;
    RelativeRedirects = "relative-redirects", Unread, Tunes;
    RewriteTarget = "rewrite-target", Read, Shapes;
    Satisfy = "satisfy", Read, Guards;
    ServerAlias = "server-alias", Read, Tunes;
    ServerSnippet = "server-snippet", Unread, Guards;
    ServiceUpstream = "service-upstream", Unread, Tunes;
    SessionCookieChangeOnFailure = "session-cookie-change-on-failure", Unread, Tunes;
    SessionCookieConditionalSamesite = "session-cookie-conditional-samesite-none", Unread, Tunes;
    SessionCookieDomain = "session-cookie-domain", Unread, Tunes;
    SessionCookieExpires = "session-cookie-expires", Read, Tunes;
    SessionCookieMaxAge = "session-cookie-max-age", Read, Tunes;
    SessionCookieName = "session-cookie-name", Read, Tunes;
    SessionCookiePath = "session-cookie-path", Read, Tunes;
    SessionCookieSamesite = "session-cookie-samesite", Unread, Tunes;
    SessionCookieSecure = "session-cookie-secure", Unread, Tunes;
    SslCiphers = "ssl-ciphers", Unread, Tunes;
    SslPassthrough = "ssl-passthrough", Unread, Tunes;
    SslPreferServerCiphers = "ssl-prefer-server-ciphers", Unread, Tunes;
    SslRedirect = "ssl-redirect", Read, Shapes;
    StreamSnippet = "stream-snippet", Unread, Guards;
    TemporalRedirect = "temporal-redirect", Read, Shapes;
    TemporalRedirectCode = "temporal-redirect-code", Read, Tunes;
    UpstreamHashBy = "upstream-hash-by", Read, Tunes;
    UpstreamHashBySubset = "upstream-hash-by-subset", Unread, Tunes;
    UpstreamHashBySubsetSize = "upstream-hash-by-subset-size", Unread, Tunes;
    UpstreamVhost = "upstream-vhost", Read, Shapes;
    UsePortInRedirects = "use-port-in-redirects", Unread, Tunes;
    UseRegex = "use-regex", Read, Shapes;
    WhitelistSourceRange = "whitelist-source-range", Read, Guards;
    XForwardedPrefix = "x-forwarded-prefix", Read, Tunes;
}

impl NginxAnnotation {
    /// Finds an annotation by its name without the prefix.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.as_str() == name)
    }

    /// Returns the effect.
    pub fn effect(self) -> Effect {
        self.row().2
    }

    pub(super) fn is_known(self) -> bool {
        match self.row().1 {
            Read | Ignored => true,
            Unread => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::annotations::looks_protecting;
    use super::*;
    use sesame_kinds::api::NGINX_PREFIX;

    #[test]
    fn unread_guards_are_those_that_look_protecting() {
        for annotation in NginxAnnotation::ALL.iter().filter(|it| !it.is_known()) {
            let name = format!("{NGINX_PREFIX}{}", annotation.as_str());
            // Its name does not show that it protects.
            let expected =
                looks_protecting(&name) || *annotation == NginxAnnotation::EnableOwaspCoreRules;
            assert_eq!(annotation.effect() == Guards, expected, "{name}");
        }
    }
}
