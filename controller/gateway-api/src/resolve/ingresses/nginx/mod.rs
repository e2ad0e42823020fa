//! ingress-nginx annotations on Ingresses. They apply if the IngressClass has the annotation
//! `projectsesame.io/annotations: Nginx`.
//!
//! If an annotation that protects requests or selects their backend is invalid, all requests of the
//! Ingress get an error. Any other invalid annotation has no effect and is reported as a problem.

mod auth;
mod basic_auth;
mod canaries;
mod forwarding;
mod paths;
mod protection;
mod references;
mod server_names;
mod values;

use std::sync::Arc;

use sesame_proto::schema::{Cors, ExternalAuth, HeaderModifier, Mirror, RateLimit};

pub(super) use self::canaries::{
    Canaries, Canary, CanaryChoice, ignored_annotations, is_canary, with_condition,
};
use self::forwarding::Forwarding;
pub(super) use self::paths::{Paths, is_expression};
pub(crate) use self::server_names::has_more_names;
pub(super) use self::server_names::{RuleHosts, ServerNames};
use self::values::boolean;
use super::annotations::PlainHttp;
use super::tls;
use crate::api::{IngressSpec, MAX_NGINX_CHARACTERS, Metadata, NGINX_PREFIX};
use crate::resolve::backends::Connection;
use crate::resolve::policies::traffic::filters::FilterSettings;
use crate::resolve::routes::rules::{Action, CheckedRule, RuleContext};
use crate::resolve::syntax::hostnames::Hostname;

/// Status of redirects to HTTPS, as in ingress-nginx.
const HTTPS_REDIRECT_STATUS: u32 = 308;

const KNOWN: [&str; 74] = [
    "affinity",
    "allowlist-source-range",
    "app-root",
    "auth-method",
    "auth-response-headers",
    "auth-secret",
    "auth-secret-type",
    "auth-signin",
    "auth-type",
    "auth-url",
    "backend-protocol",
    "canary",
    "canary-by-cookie",
    "canary-by-header",
    "canary-by-header-pattern",
    "canary-by-header-value",
    "canary-weight",
    "canary-weight-total",
    "cors-allow-credentials",
    "cors-allow-headers",
    "cors-allow-methods",
    "cors-allow-origin",
    "cors-expose-headers",
    "cors-max-age",
    "custom-headers",
    "denylist-source-range",
    "enable-cors",
    "force-ssl-redirect",
    "from-to-www-redirect",
    "limit-burst-multiplier",
    "limit-rpm",
    "limit-rps",
    "load-balance",
    "mirror-request-body",
    "mirror-target",
    "permanent-redirect",
    "permanent-redirect-code",
    "proxy-body-size",
    "proxy-connect-timeout",
    "proxy-next-upstream",
    "proxy-next-upstream-tries",
    "proxy-read-timeout",
    "proxy-send-timeout",
    "rewrite-target",
    "satisfy",
    "server-alias",
    "session-cookie-expires",
    "session-cookie-max-age",
    "session-cookie-name",
    "session-cookie-path",
    "ssl-redirect",
    "temporal-redirect",
    "temporal-redirect-code",
    "upstream-hash-by",
    "upstream-vhost",
    "use-regex",
    "whitelist-source-range",
    "x-forwarded-prefix",
    // Ignored, and reported as problems.
    "auth-cache-duration",
    "auth-cache-key",
    "auth-keepalive",
    "auth-keepalive-requests",
    "auth-keepalive-share-vars",
    "auth-keepalive-timeout",
    "auth-realm",
    "custom-http-errors",
    "default-backend",
    // Ignored silently: cookies of authorization services always reach clients, sessions are always
    // persistent, and Envoy needs no buffer settings.
    "auth-always-set-cookie",
    "affinity-mode",
    "proxy-buffering",
    "proxy-buffer-size",
    "proxy-buffers-number",
    "proxy-request-buffering",
    "client-body-buffer-size",
];

pub(super) fn is_known(name: &str) -> bool {
    let name = name.strip_prefix(NGINX_PREFIX);
    name.is_some_and(|name| KNOWN.contains(&name))
}

#[derive(Default)]
pub(super) struct NginxSettings {
    paths: Paths,
    names: ServerNames,
    forwarding: Forwarding,
    cors: Option<Box<Cors>>,
    limits: Vec<Arc<RateLimit>>,
    filters: Option<Arc<FilterSettings>>,
    external_auth: Option<Box<ExternalAuth>>,
    mirror: Option<Mirror>,
    response_headers: Option<Box<HeaderModifier>>,
    /// True by default.
    redirects_tls: bool,
    redirects_all: bool,
    pub(super) withheld: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl NginxSettings {
    pub(super) fn read(
        metadata: &Metadata,
        ingress: &str,
        cx: &mut RuleContext<'_, '_, '_>,
    ) -> Self {
        let mut from = Annotations::of(metadata);
        let paths = Paths::read(&mut from);
        let names = ServerNames::read(&mut from);
        let forwarding = Forwarding::read(&mut from);
        let cors = protection::cors(&mut from).map(Box::new);
        let limits = protection::limits(&mut from, ingress);
        let mut filters = protection::filters(&mut from, ingress);
        if let Some(check) = basic_auth::check(&mut from, ingress, cx.cx) {
            let name = format!("{ingress}/auth");
            let filters = filters.get_or_insert_default();
            filters.require(&name, Arc::new(check));
        }
        let filters = filters.map(Arc::new);
        let external_auth = auth::external_auth(&mut from, cx).map(Box::new);
        let mirror = references::mirror(&mut from, cx);
        let response_headers = references::response_headers(&mut from, cx).map(Box::new);
        from.ignore(
            &["custom-http-errors", "default-backend"],
            "a response never comes from another backend",
        );
        let redirects_tls = from.require("ssl-redirect", boolean).unwrap_or(true);
        let redirects_all = from.require("force-ssl-redirect", boolean);
        Self {
            paths,
            names,
            forwarding,
            cors,
            limits,
            filters,
            external_auth,
            mirror,
            response_headers,
            redirects_tls,
            redirects_all: redirects_all.unwrap_or_default(),
            withheld: from.withheld,
            notes: from.notes,
        }
    }

    pub(super) fn plain_http(&self, spec: &IngressSpec, host: &Hostname) -> PlainHttp {
        // Aliases of the first host get the same protection as that host.
        let first = spec.rules.iter().find(|rule| !rule.host.is_empty());
        let first = first.filter(|_| self.names.aliases.contains(host));
        let first = first.and_then(|rule| Hostname::parse(&rule.host).ok());
        let host = first.as_ref().unwrap_or(host);
        let has_tls = || {
            let hosts = spec.tls.iter().flat_map(|entry| tls::hosts_of(entry, spec));
            let hosts = hosts.filter_map(|host| Hostname::parse(host).ok());
            hosts.into_iter().any(|of_tls| of_tls.covers(host))
        };
        if self.redirects_all || self.redirects_tls && has_tls() {
            PlainHttp::Redirected(HTTPS_REDIRECT_STATUS)
        } else {
            PlainHttp::Served
        }
    }

    pub(super) fn paths(&self) -> &Paths {
        &self.paths
    }

    pub(super) fn names(&self) -> &ServerNames {
        &self.names
    }

    pub(super) fn connection(&self) -> Connection {
        self.forwarding.connection()
    }

    /// The rule's rewrite must already be set.
    pub(super) fn apply(&self, rule: &mut CheckedRule) {
        rule.cors.clone_from(&self.cors);
        rule.filters.clone_from(&self.filters);
        rule.response_headers.clone_from(&self.response_headers);
        if let Action::Forward(forward) = &mut rule.action {
            self.forwarding.apply(forward);
            forward.mirrors.extend(self.mirror.clone());
            // As in ingress-nginx, redirects come before authorization.
            rule.external_auth.clone_from(&self.external_auth);
            rule.request_headers = self.forwarding.request_headers();
            rule.rate_limits.clone_from(&self.limits);
        }
    }
}

struct Annotations<'m> {
    metadata: &'m Metadata,
    withheld: Vec<String>,
    notes: Vec<String>,
}

impl<'m> Annotations<'m> {
    fn of(metadata: &'m Metadata) -> Self {
        Self {
            metadata,
            withheld: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn get(&self, name: &str) -> Option<&'m str> {
        self.metadata
            .annotations
            .get(&format!("{NGINX_PREFIX}{name}"))
    }

    fn read<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value = self.get(name)?;
        let read = whole(value).and_then(|()| read(value));
        let why = |why| format!("metadata.annotations {NGINX_PREFIX}{name} has no effect: {why}");
        read.map_err(|error| self.notes.push(why(error))).ok()
    }

    fn ignore(&mut self, names: &[&str], why: &str) {
        let set = names.iter().filter(|name| self.get(name).is_some());
        let notes = set
            .map(|name| format!("metadata.annotations {NGINX_PREFIX}{name} has no effect: {why}"));
        let notes: Vec<String> = notes.collect();
        self.notes.extend(notes);
    }

    /// If the annotation is set, all requests of the Ingress get an error.
    fn refuse(&mut self, name: &str, why: &str) {
        if self.get(name).is_some() {
            self.withheld
                .push(format!("metadata.annotations {NGINX_PREFIX}{name}: {why}"));
        }
    }

    /// If the value is invalid, all requests of the Ingress get an error.
    fn require<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.get(name)?;
        let read = whole(value).and_then(|()| read(value));
        let why = |why| format!("metadata.annotations {NGINX_PREFIX}{name}: {why}");
        read.map_err(|error| self.withheld.push(why(error))).ok()
    }
}

/// Fails if the value is so long that it may have been truncated.
fn whole(value: &str) -> Result<(), String> {
    if value.chars().count() < MAX_NGINX_CHARACTERS {
        return Ok(());
    }
    Err(format!(
        "expected fewer than {MAX_NGINX_CHARACTERS} characters"
    ))
}
