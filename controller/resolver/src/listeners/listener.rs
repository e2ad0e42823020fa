//! A checked listener and the object that defines it.

use std::borrow::Cow;
use std::sync::Arc;

use sesame_proto::schema::{self, TrustBundle};

use super::filters::CheckedFilters;
use super::implicit::{FallbackRole, HostClients};
use super::namespaces::NamespaceRule;
use super::uncovered::UncoveredHostname;
use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use crate::policies::traffic::TrafficSettings;
use crate::syntax::hostnames::Hostname;
use crate::syntax::names;
use sesame_kinds::api::{Listener, Metadata, NamespacedName, ObjectRef, UnknownFields};
use sesame_kinds::status::{Grounds, Reason, Verdict};
use sesame_kinds::world::{Kind, ObjectKey};

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

    /// Also rejects security-relevant unknown fields.
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

    /// Returns the object, as in a ReferenceGrant's `from`.
    pub(crate) fn referrer(&self) -> Referrer<'w> {
        Referrer::new(self.kind, self.namespace)
    }

    pub(crate) fn certificate_field(&self, index: usize, reference: &ObjectRef) -> String {
        match self.kind {
            Kind::Ingress | Kind::HttpProxy => format!("tls.secretName {:?}", reference.name),
            _ => format!("tls.certificateRefs[{index}]"),
        }
    }

    pub(crate) fn display(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// Precedence of the object that defines a listener. Smaller ranks win.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Index among Gateways that are served together.
    pub(crate) gateway: usize,
    /// 0 for the Gateway, then ListenerSets, HTTPProxies, Ingresses and the fallback listener, in
    /// order of precedence.
    pub(crate) object: usize,
}

/// A hostname that listeners with wider hostnames on the port must not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldHostname {
    /// False for HTTP listeners.
    pub(crate) tls: bool,
    pub(crate) hostname: Hostname,
}

#[derive(Debug)]
pub(crate) struct CheckedListener<'w> {
    pub(crate) spec: &'w Listener,
    pub(crate) owner: Kind,
    pub(crate) rank: Rank,
    /// Name in the snapshot, such as `Gateway/namespace/name/listeners/http`.
    pub(crate) provenance: String,
    /// `None` if the protocol is unsupported.
    pub(crate) protocol: Option<schema::Protocol>,
    /// `None` if the port is invalid.
    pub(crate) port: Option<u16>,
    /// `None` if the hostname is invalid, so that no route matches the listener.
    pub(crate) hostname: Option<Hostname>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) namespaces: NamespaceRule<'w>,
    pub(crate) accepted: Verdict,
    /// Why an unknown field prevents serving the listener. `filters::resolve` moves this message to
    /// `accepted`.
    pub(crate) withheld: Option<String>,
    /// Message for the Accepted condition.
    pub(crate) accepted_message: Cow<'static, str>,
    pub(crate) conflict: Option<Grounds>,
    /// True if this listener makes its namespace exceed its share.
    pub(crate) beyond_share: bool,
    /// Hostname that this rejected listener holds, so that all requests for the hostname are
    /// rejected.
    pub(crate) holds: Option<HeldHostname>,
    pub(crate) resolved: Verdict,
    pub(crate) traffic: TrafficSettings,
    /// Descriptions of HTTPS listeners on the port with overlapping hostnames, limited to what this
    /// listener's author may see.
    pub(crate) overlaps: Vec<String>,
    /// Some of the other listeners on the port whose certificate covers this listener's hostname,
    /// or the reverse.
    pub(crate) certificate_overlaps: Vec<String>,
    pub(crate) clients: Option<&'w HostClients>,
    pub(crate) fallback: Option<FallbackRole>,
    pub(crate) client_bundle: Option<Arc<TrustBundle>>,
    /// `None` if the listener does not terminate TLS.
    pub(crate) tls: Option<schema::TlsTermination>,
    pub(crate) filters: CheckedFilters<'w>,
    /// Sorted.
    pub(crate) certificate_names: Vec<String>,
    /// Set if no certificate covers the hostname.
    pub(crate) uncovered: Option<UncoveredHostname>,
    /// True if the listener terminates TLS without a usable certificate.
    pub(crate) lacks_certificate: bool,
    /// Warnings about served certificates.
    pub(crate) advice: Vec<String>,
}

impl CheckedListener<'_> {
    /// Returns true if the listener is in the snapshot, even if it rejects all requests.
    pub(crate) fn is_served(&self) -> bool {
        self.holds.is_some()
            || (self.accepted.good() || self.filters.refuse) && !self.lacks_certificate
    }

    /// Returns true if the listener rejects all requests.
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

    pub(crate) fn allows(&self, kind: Kind, namespace: &str, cx: &ResolveContext<'_, '_>) -> bool {
        self.kinds.contains(&kind) && self.namespaces.allows(namespace, cx.world)
    }
}

/// Returns one explanation per unserved listener.
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
