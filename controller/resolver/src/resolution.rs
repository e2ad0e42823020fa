//! The result of a resolution.

use std::collections::{BTreeMap, BTreeSet};

use sesame_acme::CertificateRequests;
use sesame_proto::provenance::Provenance;

use crate::settings::GatewaySettings;
use crate::{
    MergedGateway, OcgBundles, Problem, ResolvedGateway, ServiceRequest, UncoveredHostnames,
};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::expiry::{Expiry, ExpiryOf, ListenerExpiries};
use sesame_kinds::status::Statuses;
use sesame_kinds::world::{LastGoodKeys, LastParameters, ServedTogether};

/// Result of [`resolve`](crate::resolve).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolution {
    /// Accepted Gateways, sorted by published name.
    pub gateways: Vec<ResolvedGateway>,
    /// Statuses of this controller's objects.
    pub statuses: Statuses,
    /// Gateways that are not served because their class serves only one Gateway.
    pub unserved: BTreeSet<NamespacedName>,
    /// Gateways published together with others of their class, even if not accepted.
    pub merged: BTreeMap<NamespacedName, MergedGateway>,
    /// Names whose last publication remains in effect because parameters are invalid.
    pub retained: BTreeSet<NamespacedName>,
    /// Settings of Gateways with valid parameters, and of merged Gateways under their shared name.
    pub settings: BTreeMap<NamespacedName, GatewaySettings>,
    /// Kubernetes Service settings, keyed by published name.
    pub services: BTreeMap<NamespacedName, ServiceRequest>,
    /// Hostnames that no certificate of their listener covers.
    pub uncovered: UncoveredHostnames,
    /// Problems that no condition reports, sorted by object.
    pub problems: Vec<Problem>,
    /// Last good key pairs, as input for the next resolution.
    pub last_good: LastGoodKeys,
    /// Last served ports, as input for the next resolution.
    pub served_together: ServedTogether,
    /// Valid parameters of GatewayClasses, as input for the next resolution.
    pub last_parameters: LastParameters,
    /// True if parameters that might set `spec.ingress` have been unusable from the start. Ingresses
    /// and HTTPProxies keep their stored statuses.
    pub layers_unknown: bool,
    /// Gateways with Ingresses or HTTPProxies that keep their stored statuses.
    pub kept_layers: BTreeSet<NamespacedName>,
    /// Names whose last publication, if there is one, remains in effect, because their Ingresses and
    /// HTTPProxies are unknown.
    pub unless_published: BTreeSet<NamespacedName>,
    /// ConfigMaps from which meshes read the Gateways' CA certificates.
    pub ocg_bundles: OcgBundles,
    /// Certificates to order by ACME.
    pub certificate_requests: CertificateRequests,
}

impl Resolution {
    /// Returns certificate expiries, keyed by Gateway. For merged Gateways, trust bundles are
    /// omitted.
    pub fn expiries(&self) -> BTreeMap<NamespacedName, Vec<Expiry>> {
        let mut all = BTreeMap::new();
        for published in &self.gateways {
            let name = &published.gateway;
            let members = self.merged.iter();
            let mut members = members
                .filter(|(_, it)| it.published_as == *name)
                .peekable();
            if members.peek().is_none() {
                let expiries = published.keys.iter().flat_map(Expiry::of_pair);
                let bundles = published.snapshot.trust_bundles.iter();
                let authorities = bundles.flat_map(Expiry::of_bundle);
                all.insert(name.clone(), expiries.chain(authorities).collect());
            }
            for (gateway, MergedGateway { keys, .. }) in members {
                let own = published.keys.iter().filter(|key| keys.contains(&key.name));
                all.insert(gateway.clone(), own.flat_map(Expiry::of_pair).collect());
            }
        }
        all
    }

    /// Returns the certificate expiries of each listener.
    pub fn listener_expiries(&self) -> ListenerExpiries {
        let mut all = ListenerExpiries::new();
        for published in &self.gateways {
            let pairs = published.keys.iter();
            let pairs: BTreeMap<&str, Vec<Expiry>> = pairs
                .map(|pair| (pair.name.as_str(), Expiry::of_pair(pair).collect()))
                .collect();
            let listeners = published
                .snapshot
                .ports
                .iter()
                .flat_map(|port| &port.listeners);
            for listener in listeners {
                let keys = listener.tls.iter().flat_map(|tls| &tls.keys);
                let expiries: Vec<Expiry> = keys
                    .filter_map(|key| pairs.get(key.as_str()))
                    .flatten()
                    // The certificate remains valid without an optional OCSP staple.
                    .filter(|expiry| expiry.of != ExpiryOf::Staple { demanded: false })
                    .cloned()
                    .collect();
                let Ok(provenance) = Provenance::parse(&listener.name) else {
                    continue;
                };
                if let (Some(name), false) = (provenance.listener(), expiries.is_empty()) {
                    let object_expiries = all.entry(provenance.object().to_string()).or_default();
                    object_expiries.insert(name.to_owned(), expiries);
                }
            }
        }
        all
    }
}
