//! Determines which routes of a Gateway outside the cluster are meshed, and the TLS settings for
//! their backends.
//!
//! If the mesh settings are unusable, all traffic of meshed routes is rejected, never sent in
//! plaintext or to an unverified peer.

use sesame_proto::schema::{BackendTls, TrustBundle};

use super::mesh_policies::{MeshPolicies, MeshPolicy};
use crate::context::{ResolveContext, ResolvedFor};
use crate::listeners::selectors;
use crate::syntax::{limits, names};
use crate::tls::ca_bundles::CaBundles;
use crate::tls::subject_alt_names::{self, AltNames};
use sesame_kinds::api::{
    Gateway, GatewayMesh, LabelSelector, Metadata, SubjectAltName, TrustBundleRef,
};
use sesame_kinds::status::{Reason, Verdict};
use sesame_kinds::world::{Kind, World};

pub(super) const BUNDLE_KEY: &str = "ca-bundle.crt";

pub(super) const OFF: &str = "is experimental and off; set spec.gateway.extraMinimalOCG in the controller's configuration, or \
                   extra-minimal-ocg on a host";

pub(crate) struct CheckedMesh<'w> {
    world: &'w World,
    pub(crate) gateway: String,
    /// If the configured selector is missing or invalid, all routes are meshed.
    selector: Option<&'w LabelSelector>,
    /// `None` if the Gateway's own field configures the mesh.
    policy: Option<&'w Metadata>,
    pub(crate) source: String,
    /// Errors in fields; `resolved` contains errors in references.
    pub(crate) accepted: Verdict,
    pub(crate) resolved: Verdict,
    tls: BackendTls,
    pub(crate) bundle: Option<TrustBundle>,
}

impl CheckedMesh<'_> {
    pub(crate) fn selects(&self, route: &Metadata) -> bool {
        self.selector.is_none_or(|selector| {
            selectors::selects_labels(selector, &route.labels)
                || selectors::selects_namespace(selector, &route.namespace, self.world)
        })
    }

    /// Returns `None` if traffic to meshed backends is rejected.
    pub(crate) fn tls(&self) -> Option<&BackendTls> {
        (self.accepted.good() && self.resolved.good()).then_some(&self.tls)
    }

    pub(crate) fn is_configured_by(&self, policy: &MeshPolicy<'_>) -> bool {
        self.policy == Some(&policy.object.metadata)
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::default();
        for part in [&self.accepted, &self.resolved] {
            if let Some((reason, why)) = part.fault() {
                match self.policy {
                    Some(_) => verdict.refuse(reason, format!("{}: {why}", self.source)),
                    None => verdict.refuse(reason, why),
                }
            }
        }
        verdict
    }
}

/// The Gateway's own field takes precedence over policies, and older policies take precedence over
/// newer ones.
pub(super) fn check<'w>(
    gateway: &'w Gateway,
    client_key: Option<&str>,
    policies: &MeshPolicies<'w>,
    bundles: &mut CaBundles<'w>,
    cx: &ResolveContext<'w, '_>,
) -> Option<CheckedMesh<'w>> {
    let NamedMesh {
        source,
        policy,
        mesh,
        mut accepted,
    } = NamedMesh::find(gateway, policies)?;
    let mut resolved = Verdict::default();
    let GatewayMesh {
        trust_bundle,
        label_selector,
        subject_alt_names,
        subject_alt_name_patterns,
    } = mesh;
    if !cx.options.extra_minimal_ocg {
        accepted.refuse(Reason::UnsupportedValue, format!("spec.mesh {OFF}"));
    }
    let selector = checked_selector(label_selector.as_ref(), &mut accepted);
    let AltNames {
        dns_names,
        uris,
        dns_suffixes,
        uri_prefixes,
    } = checked_names(subject_alt_names, subject_alt_name_patterns, &mut accepted);
    let bundle = find_bundle(trust_bundle, &gateway.metadata.namespace, bundles, cx);
    if let Err(why) = &bundle {
        let why = format!("spec.mesh.trustBundle: {why}");
        resolved.refuse(Reason::InvalidTrustBundle, why);
    }
    let bundle = bundle.ok();
    if client_key.is_none() {
        let why = "the Gateway has no client certificate for the mesh; set \
            spec.tls.backend.clientCertificateRef to a Secret with one";
        resolved.refuse(Reason::InvalidClientCertificateRef, why);
    }
    Some(CheckedMesh {
        world: cx.world,
        gateway: gateway.metadata.key().to_string(),
        selector,
        policy,
        source,
        accepted,
        resolved,
        tls: BackendTls {
            // GEP-3951 defines no server names for peers.
            sni: String::new(),
            trust_bundle: bundle
                .as_ref()
                .map(|it| it.name.clone())
                .unwrap_or_default(),
            dns_names,
            uris,
            client_key: client_key.unwrap_or_default().to_owned(),
            dns_suffixes,
            uri_prefixes,
            mesh: true,
            ..BackendTls::default()
        },
        bundle,
    })
}

/// If names are configured, a peer's certificate must contain at least one of them.
fn checked_names(
    names: &[SubjectAltName],
    patterns: &[String],
    accepted: &mut Verdict,
) -> AltNames {
    let number = limits::entries(
        "spec.mesh.subjectAltNamePatterns",
        patterns.len(),
        0..=limits::MAX_SUBJECT_ALT_NAMES,
    );
    accepted.refuse_if(Reason::Invalid, number.err());
    let mut read = AltNames::default();
    for (i, pattern) in patterns
        .iter()
        .take(limits::MAX_SUBJECT_ALT_NAMES)
        .enumerate()
    {
        if let Err(why) = read.add_pattern(pattern) {
            let why = format!("spec.mesh.subjectAltNamePatterns[{i}] {why}");
            accepted.refuse(Reason::Invalid, why);
        }
    }
    let names = subject_alt_names::read("", names, Some(read));
    names.unwrap_or_else(|why| {
        accepted.refuse(Reason::Invalid, format!("spec.mesh.{why}"));
        AltNames::default()
    })
}

struct NamedMesh<'w> {
    source: String,
    policy: Option<&'w Metadata>,
    mesh: &'w GatewayMesh,
    accepted: Verdict,
}

impl<'w> NamedMesh<'w> {
    fn find(gateway: &'w Gateway, policies: &MeshPolicies<'w>) -> Option<Self> {
        if let Some(mesh) = &gateway.spec.mesh {
            return Some(Self {
                source: "spec.mesh".to_owned(),
                policy: None,
                mesh,
                accepted: Verdict::default(),
            });
        }
        let oldest = policies.for_gateway(&gateway.metadata);
        let MeshPolicy { object, accepted } = oldest.first()?;
        let metadata = &object.metadata;
        Some(Self {
            source: Kind::GatewayMeshPolicy.named(metadata.key()).to_string(),
            policy: Some(metadata),
            mesh: &object.spec.mesh,
            accepted: accepted.clone(),
        })
    }
}

fn checked_selector<'w>(
    selector: Option<&'w LabelSelector>,
    accepted: &mut Verdict,
) -> Option<&'w LabelSelector> {
    let all = "so all routes count as meshed and are rejected";
    let Some(selector) = selector else {
        let why = format!(
            "spec.mesh.labelSelector is missing, {all}; set it to the labels of meshed routes"
        );
        accepted.refuse(Reason::Invalid, why);
        return None;
    };
    match selectors::check("spec.mesh.labelSelector", selector) {
        Ok(()) => Some(selector),
        Err(why) => {
            accepted.refuse(Reason::Invalid, format!("{why}, {all}"));
            None
        }
    }
}

/// A reference to another namespace needs no grant, because trust bundles are public.
pub(super) fn find_bundle<'w>(
    reference: &'w TrustBundleRef,
    own: &'w str,
    bundles: &mut CaBundles<'w>,
    cx: &ResolveContext<'w, '_>,
) -> Result<TrustBundle, String> {
    let TrustBundleRef {
        name,
        namespace,
        bundle_key,
    } = reference;
    let namespace = namespace.as_deref().unwrap_or(own);
    let key = bundle_key.as_deref().unwrap_or(BUNDLE_KEY);
    names::check_object(namespace, name)?;
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if key.is_empty() || key.len() > 253 || !key.bytes().all(allowed) {
        return Err(format!(
            "bundleKey {key:?} is not a valid ConfigMap key; expected letters, digits, `-`, `_` \
            and `.`, as in {BUNDLE_KEY}"
        ));
    }
    if cx.options.resolved_for == ResolvedFor::Cluster && namespace == cx.options.namespace {
        return Err(format!(
            "ConfigMap {namespace}/{name} is in the controller's own namespace, which is not \
            watched, so its changes would be missed; use another namespace"
        ));
    }
    bundles.in_key(namespace, name, key, cx)
}
