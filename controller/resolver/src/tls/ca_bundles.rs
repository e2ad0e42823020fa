//! Reads CA certificates and revocation lists. Parses each object once, but checks ReferenceGrants
//! for each reference.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sesame_proto::schema::TrustBundle;
use sesame_proto::sizes::{MAX_BUNDLE_BYTES_PER_NAMESPACE, MAX_TRUST_BUNDLE_BYTES};

use super::authorities::{Authorities, Union, authorities, bundle};
use super::revocation_lists;
use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use crate::context::references::Expected;
use crate::syntax::names::CA_KEY;
use sesame_kinds::api::{ClusterTrustBundleSpec, ConfigMap, NamespacedName, ObjectRef};
use sesame_kinds::status::{Grounds, Reason};
use sesame_kinds::world::Kind;

const CONFIG_MAPS: Expected = Expected {
    group: "",
    kind: "ConfigMap",
    default: "",
    wrong_kind: Reason::InvalidCaCertificateKind,
    wrong_name: Reason::InvalidCaCertificateRef,
};

type ParsedObject = Result<Arc<Authorities>, String>;

#[derive(Debug, Default)]
pub(crate) struct Combined {
    /// `None` if no reference is valid, or if the bundle would be too large.
    pub(crate) bundle: Option<Arc<TrustBundle>>,
    /// Messages start with the field path, such as `caCertificateRefs[0]: `.
    pub(crate) faults: Vec<Grounds>,
    /// Warning about a usable bundle.
    pub(crate) advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The referrer's namespace, and others if a ReferenceGrant permits the reference.
    Granted,
    OwnNamespace,
}

/// Identical lists of references share one bundle in memory.
#[derive(Default)]
pub(crate) struct CaBundles<'w> {
    /// Keyed by kind, namespace, name and key.
    objects: HashMap<(Kind, &'w str, &'w str, &'w str), ParsedObject>,
    /// Keyed by bundle name.
    pub(super) unions: HashMap<String, Arc<Union>>,
    /// Names and total size of the bundles per namespace, limited because a few objects can form
    /// thousands of combinations.
    shares: HashMap<&'w str, NamespaceShare>,
}

#[derive(Default)]
struct NamespaceShare {
    names: HashSet<String>,
    bytes: usize,
}

impl<'w> CaBundles<'w> {
    /// Combines the referenced certificates in order, without duplicates.
    pub(crate) fn combine(
        &mut self,
        referrer: Referrer<'w>,
        references: &'w [ObjectRef],
        reach: Reach,
        cx: &ResolveContext<'w, '_>,
    ) -> Combined {
        let mut combined = Combined::default();
        let mut sources: Vec<(String, Arc<Authorities>)> = Vec::new();
        for (i, reference) in references.iter().enumerate() {
            let elsewhere = reference.namespace.as_deref().filter(|namespace| {
                let own = *namespace == referrer.namespace || is_cluster_trust_bundle(reference);
                reach == Reach::OwnNamespace && !own
            });
            let found = match elsewhere {
                Some(namespace) => Err((
                    Reason::InvalidCaCertificateRef,
                    format!(
                        "namespace {namespace:?} must not be set; expected a ConfigMap in \
                        namespace {:?}",
                        referrer.namespace
                    ),
                )),
                None => self.get(referrer, reference, cx),
            };
            match found {
                Ok(source) if sources.iter().any(|(name, _)| *name == source.0) => {}
                Ok(source) => sources.push(source),
                Err((reason, why)) => combined
                    .faults
                    .push((reason, format!("caCertificateRefs[{i}]: {why}"))),
            }
        }
        if sources.is_empty() {
            return combined;
        }
        let charged = (reach == Reach::OwnNamespace).then_some(referrer.namespace);
        match self.unite(&sources, charged) {
            Ok((bundle, advice)) => {
                combined.bundle = Some(bundle);
                combined.advice = advice;
            }
            Err(why) => combined.faults.push((
                Reason::InvalidCaCertificateRef,
                format!("caCertificateRefs: {why}"),
            )),
        }
        combined
    }

    /// If `charged` is set, the bundle counts towards that namespace's limit.
    fn unite(
        &mut self,
        sources: &[(String, Arc<Authorities>)],
        charged: Option<&'w str>,
    ) -> Result<(Arc<TrustBundle>, Option<String>), String> {
        let names: Vec<&str> = sources.iter().map(|(name, _)| name.as_str()).collect();
        let name = names.join("+");
        let union = self.unions.entry(name.clone());
        let union = union
            .or_insert_with_key(|name| Arc::new(Union::new(name, sources)))
            .clone();
        let bundle = union.bundle.as_ref().map_err(|size| {
            format!(
                "certificates and revocation lists take {size} bytes in total; at most {MAX_TRUST_BUNDLE_BYTES} are allowed"
            )
        })?;
        if let Some(namespace) = charged {
            self.charge(namespace, &name, bundle)?;
        }
        Ok((bundle.clone(), union.advice.clone()))
    }

    /// Counts the bundle towards the namespace's limit.
    pub(super) fn charge(
        &mut self,
        namespace: &'w str,
        name: &str,
        bundle: &TrustBundle,
    ) -> Result<(), String> {
        let share = self.shares.entry(namespace).or_default();
        if !share.names.contains(name) {
            let bytes = share.bytes + bundle.pem.len() + bundle.crl.len();
            if bytes > MAX_BUNDLE_BYTES_PER_NAMESPACE {
                self.unions.remove(name);
                return Err(format!(
                    "policies and HTTPProxies in namespace {namespace:?} would use {bytes} bytes of different trust bundles; at most \
                     {MAX_BUNDLE_BYTES_PER_NAMESPACE} are allowed, and older policies come first"
                ));
            }
            share.bytes = bytes;
            share.names.insert(name.to_owned());
        }
        Ok(())
    }

    /// Any namespace may reference ClusterTrustBundles.
    fn cluster_trust_bundle(
        &mut self,
        reference: &'w ObjectRef,
        cx: &ResolveContext<'w, '_>,
    ) -> Result<(String, Arc<Authorities>), Grounds> {
        let invalid = |why: String| (Reason::InvalidCaCertificateRef, why);
        let name = reference.name.as_str();
        if let Some(namespace) = reference.namespace.as_deref() {
            return Err(invalid(format!(
                "namespace {namespace:?} must not be set: ClusterTrustBundles are cluster-scoped"
            )));
        }
        let Some(bundle) = cx.world.cluster_trust_bundles.get("", name) else {
            return Err(invalid(format!("ClusterTrustBundle {name} does not exist")));
        };
        let ClusterTrustBundleSpec { trust_bundle } = &bundle.spec;
        let key = (
            Kind::ClusterTrustBundle,
            "",
            bundle.metadata.name.as_str(),
            "",
        );
        let parse = || authorities("spec.trustBundle", trust_bundle, Vec::new());
        let parsed = self.objects.entry(key).or_insert_with(parse);
        let certificates = parsed
            .clone()
            .map_err(|why| invalid(format!("ClusterTrustBundle {name} {why}")))?;
        Ok((format!("ClusterTrustBundle/{name}"), certificates))
    }

    fn get(
        &mut self,
        referrer: Referrer<'w>,
        reference: &'w ObjectRef,
        cx: &ResolveContext<'w, '_>,
    ) -> Result<(String, Arc<Authorities>), Grounds> {
        if is_cluster_trust_bundle(reference) {
            return self.cluster_trust_bundle(reference, cx);
        }
        let (namespace, name) = CONFIG_MAPS.find(reference.into(), referrer, &cx.grants)?;
        let invalid = |why: String| (Reason::InvalidCaCertificateRef, why);
        let certificates = self.read(namespace, name, CA_KEY, cx).map_err(invalid)?;
        Ok((format!("ConfigMap/{namespace}/{name}"), certificates))
    }

    /// Does not check ReferenceGrants.
    pub(crate) fn in_key(
        &mut self,
        namespace: &'w str,
        name: &'w str,
        key: &'w str,
        cx: &ResolveContext<'w, '_>,
    ) -> Result<TrustBundle, String> {
        let found = self.read(namespace, name, key, cx)?;
        let Authorities { certificates, crls } = &*found;
        let name = format!("ConfigMap/{namespace}/{name}/{key}");
        Ok(bundle(name, certificates, crls))
    }

    fn read(
        &mut self,
        namespace: &'w str,
        name: &'w str,
        key: &'w str,
        cx: &ResolveContext<'w, '_>,
    ) -> ParsedObject {
        let object = NamespacedName::new(namespace, name);
        let Some(map) = cx.world.config_maps.get(namespace, name) else {
            return Err(format!("ConfigMap {object} does not exist"));
        };
        let place = (Kind::ConfigMap, namespace, name, key);
        let parsed = self.objects.entry(place);
        let parsed = parsed.or_insert_with(|| parse(map, key));
        parsed
            .clone()
            .map_err(|why| format!("ConfigMap {object} {why}"))
    }
}

fn is_cluster_trust_bundle(reference: &ObjectRef) -> bool {
    reference.group.as_deref() == Some("certificates.k8s.io")
        && reference.kind.as_deref() == Some(Kind::ClusterTrustBundle.as_str())
}

/// The error completes the sentence "ConfigMap x …".
fn parse(map: &ConfigMap, key: &str) -> ParsedObject {
    let ConfigMap {
        metadata: _,
        data,
        binary_data: _,
    } = map;
    let text = data.get(key).ok_or(format!("has no key {key}"))?;
    let lists = data.get("ca.crl").map(|text| revocation_lists::read(text));
    let lists = lists.transpose().map_err(|why| format!("ca.crl {why}"))?;
    authorities(key, text, lists.unwrap_or_default())
}

/// Validates a bundle that an agent reads from files instead of a ConfigMap. Errors refer to the
/// parts as `ca.crt` and `ca.crl`.
pub fn checked_bundle(name: &str, text: &str, lists: &str) -> Result<TrustBundle, String> {
    let lists = match lists {
        "" => Vec::new(),
        lists => revocation_lists::read(lists).map_err(|why| format!("ca.crl {why}"))?,
    };
    let found = authorities(CA_KEY, text, lists)?;
    let Authorities { certificates, crls } = &*found;
    Ok(bundle(name.to_owned(), certificates, crls))
}
