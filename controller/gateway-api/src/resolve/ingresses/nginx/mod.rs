//! ingress-nginx's annotations on an Ingress. They apply if the IngressClass has the annotation
//! `projectsesame.io/annotations: Nginx`.
//!
//! Some annotations protect requests, or decide which requests a backend gets. If one of these is
//! invalid, no part of the Ingress is served: all of its requests get an error. Any other invalid
//! annotation has no effect, and is reported as a problem.

mod canaries;
mod forwarding;
mod paths;
mod protection;
mod values;

use std::sync::Arc;

use sesame_proto::schema::{Cors, RateLimit};

pub(super) use self::canaries::{Canaries, Canary, CanaryChoice, is_canary, with_condition};
use self::forwarding::Forwarding;
pub(super) use self::paths::{Paths, is_expression};
use self::values::boolean;
use super::annotations::PlainHttp;
use super::tls;
use crate::api::{IngressSpec, MAX_NGINX_CHARACTERS, Metadata, OF_NGINX};
use crate::resolve::backends::Connection;
use crate::resolve::policies::traffic::filters::FilterSettings;
use crate::resolve::routes::rules::{Action, CheckedRule};
use crate::resolve::syntax::hostnames::Hostname;

/// Status of redirects to HTTPS, as in ingress-nginx.
const TO_HTTPS: u32 = 308;

/// The supported annotations.
const KNOWN: [&str; 51] = [
    "affinity",
    "allowlist-source-range",
    "app-root",
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
    "denylist-source-range",
    "enable-cors",
    "force-ssl-redirect",
    "limit-burst-multiplier",
    "limit-rpm",
    "limit-rps",
    "load-balance",
    "permanent-redirect",
    "permanent-redirect-code",
    "proxy-body-size",
    "proxy-connect-timeout",
    "proxy-next-upstream",
    "proxy-next-upstream-tries",
    "proxy-read-timeout",
    "proxy-send-timeout",
    "rewrite-target",
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
    // Accepted without effect: sessions always persist, and Envoy needs no buffer settings.
    "affinity-mode",
    "proxy-buffering",
    "proxy-buffer-size",
    "proxy-buffers-number",
    "proxy-request-buffering",
    "client-body-buffer-size",
];

/// Returns true if the annotation with this full name is supported.
pub(super) fn is_known(name: &str) -> bool {
    let name = name.strip_prefix(OF_NGINX);
    name.is_some_and(|name| KNOWN.contains(&name))
}

/// Settings for an Ingress's rules, from its annotations.
#[derive(Default)]
pub(super) struct NginxSettings {
    paths: Paths,
    forwarding: Forwarding,
    cors: Option<Box<Cors>>,
    /// Limits that all rules share.
    limits: Vec<Arc<RateLimit>>,
    filters: Option<Arc<FilterSettings>>,
    /// `ssl-redirect`, true by default.
    redirects_tls: bool,
    /// `force-ssl-redirect`.
    redirects_all: bool,
    /// Errors that keep the whole Ingress from being served.
    pub(super) withheld: Vec<String>,
    /// Messages about values that have no effect.
    pub(super) notes: Vec<String>,
}

impl NginxSettings {
    /// Reads the annotations of an Ingress with this provenance.
    pub(super) fn read(metadata: &Metadata, ingress: &str) -> Self {
        let mut from = Annotations::of(metadata);
        let paths = Paths::read(&mut from);
        let forwarding = Forwarding::read(&mut from);
        let cors = protection::cors(&mut from).map(Box::new);
        let limits = protection::limits(&mut from, ingress);
        let filters = protection::filters(&mut from, ingress).map(Arc::new);
        let redirects_tls = from.require("ssl-redirect", boolean).unwrap_or(true);
        let redirects_all = from.require("force-ssl-redirect", boolean);
        Self {
            paths,
            forwarding,
            cors,
            limits,
            filters,
            redirects_tls,
            redirects_all: redirects_all.unwrap_or_default(),
            withheld: from.withheld,
            notes: from.notes,
        }
    }

    /// Returns the treatment of plaintext requests for a host of this Ingress.
    pub(super) fn plain_http(&self, spec: &IngressSpec, host: &Hostname) -> PlainHttp {
        let has_tls = || {
            let hosts = spec.tls.iter().flat_map(|entry| tls::hosts_of(entry, spec));
            let hosts = hosts.filter_map(|host| Hostname::parse(host).ok());
            hosts.into_iter().any(|of_tls| of_tls.covers(host))
        };
        if self.redirects_all || self.redirects_tls && has_tls() {
            PlainHttp::Redirected(TO_HTTPS)
        } else {
            PlainHttp::Served
        }
    }

    pub(super) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Returns the settings for connections to backends.
    pub(super) fn connection(&self) -> Connection {
        self.forwarding.connection()
    }

    /// Applies the settings to a rule whose rewrite is set already.
    pub(super) fn apply(&self, rule: &mut CheckedRule) {
        rule.cors.clone_from(&self.cors);
        rule.filters.clone_from(&self.filters);
        if let Action::Forward(forward) = &mut rule.action {
            self.forwarding.apply(forward);
            rule.request_headers = self.forwarding.request_headers();
            rule.rate_limits.clone_from(&self.limits);
        }
    }
}

/// Annotations of an Ingress, and the errors in them.
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
        self.metadata.annotations.get(&format!("{OF_NGINX}{name}"))
    }

    /// Reads an annotation that is ignored if it is invalid.
    fn read<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value = self.get(name)?;
        let read = whole(value).and_then(|()| read(value));
        let why = |why| format!("metadata.annotations {OF_NGINX}{name} has no effect: {why}");
        read.map_err(|error| self.notes.push(why(error))).ok()
    }

    /// Reads an annotation that keeps the whole Ingress from being served if it is invalid.
    fn require<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.get(name)?;
        let read = whole(value).and_then(|()| read(value));
        let why = |why| format!("metadata.annotations {OF_NGINX}{name}: {why}");
        read.map_err(|error| self.withheld.push(why(error))).ok()
    }
}

/// Fails if the value may have been truncated.
fn whole(value: &str) -> Result<(), String> {
    if value.chars().count() < MAX_NGINX_CHARACTERS {
        return Ok(());
    }
    Err(format!(
        "expected fewer than {MAX_NGINX_CHARACTERS} characters"
    ))
}
