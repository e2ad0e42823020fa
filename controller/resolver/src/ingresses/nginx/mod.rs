//! ingress-nginx annotations on Ingresses. They apply if the IngressClass has the annotation
//! `projectsesame.io/annotations: Nginx`.
//!
//! If an annotation that protects requests or selects their backend is invalid, all requests of the
//! Ingress get an error. Any other invalid annotation has no effect and is reported as a problem.

mod auth;
mod basic_auth;
mod canaries;
mod client_certificates;
mod forwarding;
mod paths;
mod protection;
mod references;
mod satisfy;
mod server_names;
pub mod shared;
mod sign_in;
mod table;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_proto::schema::{Cors, ExternalAuth, HeaderModifier, Mirror, RateLimit};

pub(super) use self::canaries::{
    Canaries, Canary, CanaryChoice, ignored_annotations, is_canary, with_condition,
};
use self::client_certificates::ClientCertificates;
pub(super) use self::client_certificates::host_clients;
use self::forwarding::Forwarding;
pub(super) use self::paths::{Paths, is_expression};
use self::satisfy::Satisfied;
pub(crate) use self::server_names::has_more_names;
pub(super) use self::server_names::{RuleHosts, ServerNames};
use self::table::{Effect, NginxAnnotation};
use self::values::boolean;
use super::annotations::PlainHttp;
use super::tls;
use crate::backends::Connection;
use crate::listeners::implicit::HostClients;
use crate::policies::traffic::access::AccessCheck;
use crate::policies::traffic::filters::FilterSettings;
use crate::routes::rules::{Action, CheckedRule, RuleContext};
use crate::syntax::hostnames::Hostname;
use sesame_kinds::api::{
    IngressSpec, MAX_NGINX_CHARACTERS, Metadata, NGINX_DEFAULT_BACKEND, NGINX_PREFIX,
};

/// Status of redirects to HTTPS, as in ingress-nginx.
const HTTPS_REDIRECT_STATUS: u32 = 308;

pub(super) fn is_known(name: &str) -> bool {
    find(name).is_some_and(NginxAnnotation::is_known)
}

/// Returns true for annotations that decide which requests may pass.
pub(super) fn guards(name: &str) -> bool {
    find(name).is_some_and(|it| it.effect() == Effect::Guards)
}

fn find(name: &str) -> Option<NginxAnnotation> {
    NginxAnnotation::find(name.strip_prefix(NGINX_PREFIX)?)
}

#[derive(Default)]
pub(super) struct NginxSettings {
    paths: Paths,
    names: ServerNames,
    forwarding: Forwarding,
    cors: Option<Box<Cors>>,
    limits: Vec<Arc<RateLimit>>,
    filters: Option<Arc<FilterSettings>>,
    certificates: Option<ClientCertificates>,
    external_auth: Option<Box<ExternalAuth>>,
    mirror: Option<Mirror>,
    response_headers: Option<Box<HeaderModifier>>,
    /// Name of a Backend; may be empty.
    default_backend: String,
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
        let ranges = protection::source_ranges(&mut from, ingress);
        let users = basic_auth::check(&mut from, ingress, cx.cx);
        let mut external_auth = auth::external_auth(&mut from, cx).map(Box::new);
        let checks = (users.is_some(), external_auth.is_some());
        let Satisfied { ranges, exempt } = satisfy::read(&mut from, ranges, checks);
        let mut filters = protection::filters(&mut from, ingress, ranges);
        if let Some(auth) = &mut external_auth {
            auth.exempt_clients.clone_from(&exempt);
        }
        if let Some(users) = users {
            let name = format!("{ingress}/auth");
            let check = AccessCheck::of_users(users, exempt);
            let filters = filters.get_or_insert_default();
            filters.require(&name, Arc::new(check));
        }
        if let Some(page) = sign_in::read(&mut from) {
            filters.get_or_insert_default().sign_in_at(ingress, page);
        }
        let filters = filters.map(Arc::new);
        let certificates = client_certificates::read(&mut from);
        let mirror = references::mirror(&mut from, cx);
        let response_headers = references::response_headers(&mut from, cx).map(Box::new);
        from.ignore(
            &["custom-http-errors"],
            "a backend's response is never replaced by another backend's",
        );
        let default_backend = match forwarding.session {
            Some(_) => {
                from.ignore(&[NGINX_DEFAULT_BACKEND], "the Ingress has affinity");
                None
            }
            None => references::default_backend(&mut from, forwarding.connection(), cx),
        };
        let redirects_tls = from.require("ssl-redirect", boolean).unwrap_or(true);
        let redirects_all = from.require("force-ssl-redirect", boolean);
        Self {
            paths,
            names,
            forwarding,
            cors,
            limits,
            filters,
            certificates,
            external_auth,
            mirror,
            response_headers,
            default_backend: default_backend.unwrap_or_default(),
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
        if self.redirects_all || self.clients().is_some() || self.redirects_tls && has_tls() {
            PlainHttp::Redirected(HTTPS_REDIRECT_STATUS)
        } else {
            PlainHttp::Served
        }
    }

    /// Returns how the Ingress's listeners must validate clients.
    pub(super) fn clients(&self) -> Option<&HostClients> {
        self.certificates.as_ref()?.clients.as_ref()
    }

    pub(super) fn paths(&self) -> &Paths {
        &self.paths
    }

    pub(super) fn names(&self) -> &ServerNames {
        &self.names
    }

    pub(super) fn connection(&self) -> Connection {
        Connection {
            fallback: self.default_backend.clone(),
            ..self.forwarding.connection()
        }
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
            let mut headers = self.forwarding.request_headers();
            if let Some(certificates) = &self.certificates {
                certificates.add_headers(&mut headers);
            }
            rule.request_headers = Some(Box::new(headers));
            rule.rate_limits.clone_from(&self.limits);
        }
    }
}

struct Annotations<'m> {
    metadata: &'m Metadata,
    withheld: Vec<String>,
    notes: Vec<String>,
    /// Invalid annotations and reasons.
    faults: BTreeMap<String, String>,
}

impl<'m> Annotations<'m> {
    fn of(metadata: &'m Metadata) -> Self {
        Self {
            metadata,
            withheld: Vec::new(),
            notes: Vec::new(),
            faults: BTreeMap::new(),
        }
    }

    fn get(&self, name: &str) -> Option<&'m str> {
        self.metadata
            .annotations
            .get(&format!("{NGINX_PREFIX}{name}"))
    }

    fn read<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let why = |why| format!("metadata.annotations {NGINX_PREFIX}{name} has no effect: {why}");
        match self.parse(name, read)? {
            Ok(value) => return Some(value),
            Err(error) => self.notes.push(why(error)),
        }
        None
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
        let why = |why| format!("metadata.annotations {NGINX_PREFIX}{name}: {why}");
        match self.parse(name, read)? {
            Ok(value) => return Some(value),
            Err(error) => self.withheld.push(why(error)),
        }
        None
    }

    /// Returns `None` if the annotation is unset.
    fn parse<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<Result<T, String>> {
        let value = self.get(name)?;
        let read = whole(value).and_then(|()| read(value));
        if let Err(error) = &read {
            self.faults.insert(name.to_owned(), error.clone());
        }
        Some(read)
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
