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

    /// Checks the object itself: unknown fields and the name.
    pub(crate) fn check_object(&self, verdict: &mut Verdict) {
        verdict.refuse_if(Reason::UnsupportedValue, self.unknown.refusal("listeners"));
        self.check_name(verdict);
    }

    /// Checks its name.
    pub(crate) fn check_name(&self, verdict: &mut Verdict) {
        if let Err(why) = names::check_object(self.namespace, self.name) {
            verdict.refuse(Reason::Invalid, format!("metadata: {why}"));
        }
    }

    pub(crate) fn key(&self) -> ObjectKey {
        let name = NamespacedName::new(self.namespace, self.name);
        self.kind.named(name)
    }

    /// Returns the owner in the terms of ReferenceGrants.
    pub(crate) fn referrer(&self) -> Referrer<'w> {
        Referrer {
            group: self.kind.group(),
            kind: self.kind.as_str(),
            namespace: self.namespace,
        }
    }

    /// Returns the place of a listener's certificate in messages.
    pub(crate) fn certificate_field(&self, index: usize, reference: &ObjectRef) -> String {
        match self.kind {
            Kind::Ingress | Kind::HttpProxy => format!("tls.secretName {:?}", reference.name),
            _ => format!("tls.certificateRefs[{index}]"),
        }
    }

    /// Returns the owner's name in messages: `Gateway namespace/name`.
    pub(crate) fn display(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// The precedence of the object that defines a listener; smaller ranks win.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Index of the Gateway among those served together.
    pub(crate) gateway: usize,
    /// 0 for the Gateway itself, then its ListenerSets, HTTPProxies and Ingresses in their order.
    pub(crate) object: usize,
}

/// A hostname that wider listeners of the port must not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldHostname {
    /// True on a port of HTTPS and TLS listeners, false on one of HTTP listeners.
    pub(crate) tls: bool,
    pub(crate) hostname: Hostname,
}

/// A listener with everything that is known before routes attach.
#[derive(Debug)]
pub(crate) struct CheckedListener<'w> {
    pub(crate) spec: &'w Listener,
    /// Kind of the object that defines it.
    pub(crate) owner: Kind,
    pub(crate) rank: Rank,
    /// Name in the snapshot, such as `Gateway/namespace/name/listeners/http`.
    pub(crate) provenance: String,
    /// `None` if the protocol supports no kind of route.
    pub(crate) protocol: Option<schema::Protocol>,
    /// `None` if the port is invalid.
    pub(crate) port: Option<u16>,
    /// `None` if the hostname is invalid. Then no route has a hostname in common with it.
    pub(crate) hostname: Option<Hostname>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) namespaces: NamespaceRule<'w>,
    pub(crate) accepted: Verdict,
    /// The reason why an unknown field keeps the listener from being served, until other errors are
    /// known.
    pub(crate) withheld: Option<String>,
    /// Message of the condition Accepted if it is true.
    pub(crate) accepted_message: Cow<'static, str>,
    pub(crate) conflict: Option<Grounds>,
    /// True if its namespace has used up its share of listeners.
    pub(crate) beyond_share: bool,
    /// The hostname that it holds against wider listeners although it is not served: all requests
    /// are refused.
    pub(crate) holds: Option<HeldHostname>,
    pub(crate) resolved: Verdict,
    /// Limits and defaults of its requests.
    pub(crate) traffic: TrafficSettings,
    /// HTTPS listeners of the port with overlapping hostnames, as the owner's author may see them.
    pub(crate) overlaps: Vec<String>,
    /// Some of the listeners that overlap by certificate: one's certificate covers the other's
    /// hostname.
    pub(crate) certificate_overlaps: Vec<String>,
    /// The validation of its clients, if an HTTPProxy asks for one.
    pub(crate) clients: Option<&'w HostClients>,
    /// The bundle of this validation.
    pub(crate) client_bundle: Option<Arc<TrustBundle>>,
    /// TLS termination, for protocols that have it.
    pub(crate) tls: Option<schema::TlsTermination>,
    /// Filters that apply before routing.
    pub(crate) filters: CheckedFilters<'w>,
    /// DNS names of its certificates, sorted.
    pub(crate) certificate_names: Vec<String>,
    /// Its hostname, if none of these names covers it.
    pub(crate) uncovered: Option<UncoveredHostname>,
    /// True if the listener terminates TLS but has no usable certificate.
    pub(crate) lacks_certificate: bool,
    /// Sentences on flawed certificates that are served nevertheless.
    pub(crate) advice: Vec<String>,
}

impl CheckedListener<'_> {
    /// Returns true if the listener is in the snapshot, even if only to refuse all requests.
    pub(crate) fn is_served(&self) -> bool {
        self.holds.is_some()
            || (self.accepted.good() || self.filters.refuse) && !self.lacks_certificate
    }

    /// Returns true if it is in the snapshot only to refuse all requests.
    pub(crate) fn refuses(&self) -> bool {
        self.holds.is_some() || self.filters.refuse
    }

    /// Returns true if a TLSRoute has its hostname.
    pub(crate) fn has_yielded(&self) -> bool {
        let reason = self.conflict.as_ref().map(|(reason, _)| *reason);
        reason == Some(Reason::OtherRoute)
    }

    /// Returns true if routes can be served on it.
    pub(crate) fn serves(&self) -> bool {
        self.accepted.good() && !self.lacks_certificate
    }

    /// Returns true if routes of the kind from the namespace may attach.
    pub(crate) fn allows(&self, kind: Kind, namespace: &str, cx: &ResolveContext<'_, '_>) -> bool {
        self.kinds.contains(&kind) && self.namespaces.allows(namespace, cx.world)
    }
}

/// Returns a sentence for each listener that is not served, joined by semicolons.
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
