//! A checked listener, and the object that defines it.

use std::borrow::Cow;
use std::sync::Arc;

use sesame_proto::schema::{self, TrustBundle};

use super::filters::CheckedFilters;
use super::implicit::HostClients;
use super::namespaces::NamespaceRule;
use super::uncovered::UncoveredHostname;
use crate::api::{Listener, Metadata, NamespacedName, ObjectRef, UnknownFields};
use crate::resolve::context::ResolveContext;
use crate::resolve::context::grants::Referrer;
use crate::resolve::policies::traffic::TrafficSettings;
use crate::resolve::syntax::hostnames::Hostname;
use crate::resolve::syntax::names;
use crate::status::{Grounds, Reason, Verdict};
use crate::world::{Kind, ObjectKey};

/// The Gateway, ListenerSet, HTTPProxy or Ingress that defines a listener.
#[derive(Clone, Debug)]
pub(crate) struct ListenerOwner<'w> {
    pub(crate) kind: Kind,
    pub(crate) namespace: &'w str,
    pub(crate) name: &'w str,
    pub(crate) generation: i64,
    pub(crate) unknown: &'w UnknownFields,
}

impl<'w> ListenerOwner<'w> {
    pub(crate) fn of(kind: Kind, metadata: &'w Metadata) -> Self {
        Self {
            kind,
            namespace: &metadata.namespace,
            name: &metadata.name,
            generation: metadata.generation,
            unknown: &metadata.unknown,
        }
    }

    /// Checks the object's name, and rejects an object with security-relevant unknown fields.
    pub(crate) fn check_object(&self, verdict: &mut Verdict) {
        verdict.refuse_if(Reason::UnsupportedValue, self.unknown.refusal("listeners"));
        self.check_name(verdict);
    }

    pub(crate) fn check_name(&self, verdict: &mut Verdict) {
        if let Err(why) = names::check_object(self.namespace, self.name) {
            verdict.refuse(Reason::Invalid, format!("metadata: {why}"));
        }
    }

    pub(crate) fn key(&self) -> ObjectKey {
        let name = NamespacedName::new(self.namespace, self.name);
        self.kind.named(name)
    }

    /// Returns the object that defines a listener, as a ReferenceGrant's `from` describes it.
    pub(crate) fn referrer(&self) -> Referrer<'w> {
        Referrer {
            group: self.kind.group(),
            kind: self.kind.as_str(),
            namespace: self.namespace,
        }
    }

    /// Returns the name of the field that refers to a certificate of a listener, for messages.
    pub(crate) fn certificate_field(&self, index: usize, reference: &ObjectRef) -> String {
        match self.kind {
            Kind::Ingress | Kind::HttpProxy => format!("tls.secretName {:?}", reference.name),
            _ => format!("tls.certificateRefs[{index}]"),
        }
    }

    /// Names the object for messages, as `Gateway namespace/name`.
    pub(crate) fn display(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// The precedence of the object that defines a listener. Smaller ranks take precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Index of the Gateway in the order of Gateways that are served together.
    pub(crate) gateway: usize,
    /// 0 for the Gateway itself. ListenerSets, HTTPProxies and Ingresses follow in order of
    /// precedence.
    pub(crate) object: usize,
}

/// A hostname for which listeners with wider hostnames on the same port must not serve requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldHostname {
    /// True for HTTPS and TLS listeners, false for HTTP listeners.
    pub(crate) tls: bool,
    pub(crate) hostname: Hostname,
}

/// A checked listener, before routes attach.
#[derive(Debug)]
pub(crate) struct CheckedListener<'w> {
    pub(crate) spec: &'w Listener,
    /// Kind of the object that defines the listener.
    pub(crate) owner: Kind,
    pub(crate) rank: Rank,
    /// Name in the snapshot, such as `Gateway/namespace/name/listeners/http`.
    pub(crate) provenance: String,
    /// `None` if the protocol does not support any kind of route.
    pub(crate) protocol: Option<schema::Protocol>,
    /// `None` if the port is invalid.
    pub(crate) port: Option<u16>,
    /// `None` if the hostname is invalid. No route then shares a hostname with the listener.
    pub(crate) hostname: Option<Hostname>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) namespaces: NamespaceRule<'w>,
    pub(crate) accepted: Verdict,
    /// The reason, if an unknown field prevents the listener from being served. `filters::resolve`
    /// moves the reason to `accepted`.
    pub(crate) withheld: Option<String>,
    /// Message of the condition Accepted if the listener is accepted.
    pub(crate) accepted_message: Cow<'static, str>,
    pub(crate) conflict: Option<Grounds>,
    /// True if this listener makes its namespace exceed its share of listeners.
    pub(crate) beyond_share: bool,
    /// The hostname that this unserved listener keeps away from listeners with wider hostnames. All
    /// requests for the hostname are rejected.
    pub(crate) holds: Option<HeldHostname>,
    pub(crate) resolved: Verdict,
    /// Limits and defaults that apply to requests.
    pub(crate) traffic: TrafficSettings,
    /// HTTPS listeners on the same port whose hostnames overlap with this listener's. The
    /// descriptions reveal only what this listener's author may see.
    pub(crate) overlaps: Vec<String>,
    /// Some of the listeners whose certificates overlap with this listener's. Certificates overlap
    /// if one listener's certificate covers the other listener's hostname.
    pub(crate) certificate_overlaps: Vec<String>,
    /// Client certificate validation that an HTTPProxy configures, if any.
    pub(crate) clients: Option<&'w HostClients>,
    /// The trust bundle for `clients`.
    pub(crate) client_bundle: Option<Arc<TrustBundle>>,
    /// TLS termination. `None` if the listener does not terminate TLS.
    pub(crate) tls: Option<schema::TlsTermination>,
    /// Filters that apply to requests before routing.
    pub(crate) filters: CheckedFilters<'w>,
    /// DNS names in the listener's certificates, sorted.
    pub(crate) certificate_names: Vec<String>,
    /// The listener's hostname, if none of the certificates covers it.
    pub(crate) uncovered: Option<UncoveredHostname>,
    /// True if the listener terminates TLS but has no usable certificate.
    pub(crate) lacks_certificate: bool,
    /// Warnings about flawed certificates that are served despite their flaws.
    pub(crate) advice: Vec<String>,
}

impl CheckedListener<'_> {
    /// Returns true if the listener is in the snapshot, either to serve requests or to reject all
    /// of them.
    pub(crate) fn is_served(&self) -> bool {
        self.holds.is_some()
            || (self.accepted.good() || self.filters.refuse) && !self.lacks_certificate
    }

    /// Returns true if the listener is in the snapshot only to reject all requests.
    pub(crate) fn refuses(&self) -> bool {
        self.holds.is_some() || self.filters.refuse
    }

    /// Returns true if the listener has lost its hostname to a TLSRoute.
    pub(crate) fn has_yielded(&self) -> bool {
        let reason = self.conflict.as_ref().map(|(reason, _)| *reason);
        reason == Some(Reason::OtherRoute)
    }

    /// Returns true if the listener can serve routes.
    pub(crate) fn serves(&self) -> bool {
        self.accepted.good() && !self.lacks_certificate
    }

    /// Returns true if routes of this kind may attach from this namespace.
    pub(crate) fn allows(&self, kind: Kind, namespace: &str, cx: &ResolveContext<'_, '_>) -> bool {
        self.kinds.contains(&kind) && self.namespaces.allows(namespace, cx.world)
    }
}

/// Returns one explanation for each listener that is not served, joined with semicolons.
pub(crate) fn invalid(listeners: &[CheckedListener<'_>]) -> String {
    let faults: Vec<String> = listeners
        .iter()
        .filter_map(|listener| {
            let no_certificate = || {
                let fault = listener.resolved.fault();
                fault.filter(|_| listener.lacks_certificate)
            };
            let (_, message) = listener.accepted.fault().or_else(no_certificate)?;
            Some(format!("listener {:?}: {message}", listener.spec.name))
        })
        .collect();
    faults.join("; ")
}
