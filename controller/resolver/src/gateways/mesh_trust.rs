//! Checks whether meshes trust the certificates of Gateways outside the cluster.
//!
//! The result never affects traffic, because each mesh decides for itself which certificates it
//! accepts.

use std::collections::HashSet;

use super::CheckedGateway;
use super::mesh::{self, OFF};
use super::ocg_bundles::{self, OcgBundles};
use crate::context::ResolveContext;
use crate::syntax::{limits, names};
use crate::tls::ca_bundles::CaBundles;
use crate::tls::certificates::Certificates;
use crate::tls::trust_paths;
use sesame_kinds::api::{
    EXPERIMENTAL_GATEWAY_GROUP, GatewayRef, LocalPolicyTargetRef, MeshOcg, MeshOcgPolicy,
    MeshOcgPolicySpec, Metadata,
};
use sesame_kinds::status::{
    Condition, ConditionStatus, ConditionType, Reason, SignatureTrust, Verdict,
};
use sesame_kinds::world::Kind;

pub(crate) struct TrustingMesh<'w> {
    pub(crate) mesh: &'w str,
    /// `None` if the XMesh's own field configures the trust.
    pub(crate) policy: Option<&'w Metadata>,
    /// Errors in fields; `resolved` contains errors in references.
    pub(crate) accepted: Verdict,
    pub(crate) resolved: Verdict,
    source: String,
    bundle: String,
    /// An empty list means all Gateways.
    gateways: &'w [GatewayRef],
    /// True if Sesame itself writes the trust bundle.
    is_published: bool,
    trusted: Vec<SignatureTrust>,
    untrusted: Vec<String>,
}

/// The XMeshes' own fields come first, followed by policies in order of precedence.
#[derive(Default)]
pub(crate) struct MeshTrust<'w> {
    pub(crate) meshes: Vec<TrustingMesh<'w>>,
    pub(crate) bundles: OcgBundles,
}

impl<'w> MeshTrust<'w> {
    pub(crate) fn check_all(
        gateways: &[CheckedGateway<'w>],
        certificates: &Certificates<'w, '_>,
        bundles: &mut CaBundles<'w>,
        cx: &mut ResolveContext<'w, '_>,
    ) -> Self {
        let mut all = Vec::new();
        for mesh in &cx.world.x_meshes {
            if let (Some(ocg), true) = (&mesh.spec.ocg, cx.options.extra_minimal_ocg) {
                let source = format!("XMesh/{}", mesh.metadata.name);
                let mut trusting_mesh = TrustingMesh::new(&mesh.metadata.name, source, &[]);
                trusting_mesh.compare(ocg, gateways, certificates, bundles, cx);
                all.push(trusting_mesh);
            }
        }
        let mut published = OcgBundles::new();
        let mut taken: HashSet<&str> = all.iter().map(|mesh| mesh.mesh).collect();
        let policies = cx.world.mesh_ocg_policies.iter();
        let mut policies: Vec<&'w MeshOcgPolicy> = policies.map(AsRef::as_ref).collect();
        policies.sort_by(|a, b| a.metadata.by_age(&b.metadata));
        for policy in policies {
            let accepted = check(policy, cx);
            let first = all.len();
            for mesh in targets(policy, cx) {
                let source = Kind::MeshOcgPolicy.named(policy.metadata.key()).to_string();
                let mut trusting_mesh = TrustingMesh::new(mesh, source, &policy.spec.gateways);
                trusting_mesh.policy = Some(&policy.metadata);
                trusting_mesh.accepted = accepted.clone();
                if cx.world.x_meshes.get("", mesh).is_none() {
                    let why = format!("XMesh {mesh} does not exist");
                    trusting_mesh.accepted.refuse(Reason::TargetNotFound, why);
                } else if !taken.insert(mesh) {
                    let why = format!(
                        "the trust of XMesh {mesh} is already set, by the XMesh itself or by an \
                        older policy"
                    );
                    trusting_mesh.accepted.refuse(Reason::Conflicted, why);
                }
                trusting_mesh.is_published = policy.spec.publish == Some(true);
                trusting_mesh.compare(&policy.spec.ocg, gateways, certificates, bundles, cx);
                all.push(trusting_mesh);
            }
            let policy_meshes = all.get_mut(first..).unwrap_or_default();
            let applies = policy_meshes.iter().any(|mesh| mesh.accepted.good());
            if policy.spec.publish == Some(true) {
                let mut faults = Verdict::default();
                if applies {
                    ocg_bundles::add(policy, gateways, &mut published, &mut faults, cx);
                } else {
                    ocg_bundles::keep(policy, &mut published);
                }
                for mesh in policy_meshes {
                    mesh.resolved.add(&faults);
                }
            }
        }
        Self {
            meshes: all,
            bundles: published,
        }
    }

    /// Returns `None` if no mesh configures trust for the Gateway, or if the Gateway has no
    /// certificate.
    pub(crate) fn of_gateway(
        &self,
        gateway: &CheckedGateway<'_>,
        generation: i64,
    ) -> Option<Condition> {
        let key = gateway.client_key.as_ref()?;
        gateway.mesh.as_ref()?;
        let meshes = self.meshes.iter();
        let meshes = meshes.filter(|it| it.accepted.good() && it.is_about(gateway));
        let name = gateway.name().to_string();
        let (mut trusted, mut refused, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        let mut rests = Vec::new();
        for mesh in meshes {
            let description = mesh.describe();
            if let Some((_, why)) = mesh.resolved.fault() {
                unknown.push(format!("{}: {why}", mesh.source));
            } else if mesh.untrusted.contains(&name) {
                refused.push(description);
            } else {
                rests.extend(mesh.trust_in(&name).map(|trust| SignatureTrust {
                    of: description.clone(),
                    ..trust.clone()
                }));
                trusted.push(description);
            }
        }
        let (status, reason, message) = if !refused.is_empty() {
            let message = format!(
                "the client certificate ({key}) is not signed by a CA certificate of {}, so the \
                mesh rejects it; add its CA certificate to the bundle, or use another certificate",
                refused.join(", nor of ")
            );
            let reason = Reason::CertificateNotTrusted;
            (ConditionStatus::False, reason, message)
        } else if !unknown.is_empty() {
            let reason = Reason::InvalidTrustBundle;
            (ConditionStatus::Unknown, reason, unknown.join("; "))
        } else if trusted.is_empty() {
            return None;
        } else {
            let message = format!(
                "the client certificate ({key}) is signed by a CA certificate of {}",
                trusted.join(" and of ")
            );
            let reason = Reason::CertificateTrusted;
            (ConditionStatus::True, reason, message)
        };
        let type_ = ConditionType::ClientCertificateTrusted;
        let condition = Condition::new(type_, status, reason, &message, generation);
        Some(condition.resting_on(rests))
    }
}

impl<'w> TrustingMesh<'w> {
    fn new(mesh: &'w str, source: String, gateways: &'w [GatewayRef]) -> Self {
        Self {
            mesh,
            policy: None,
            accepted: Verdict::default(),
            resolved: Verdict::default(),
            source,
            bundle: String::new(),
            gateways,
            is_published: false,
            trusted: Vec::new(),
            untrusted: Vec::new(),
        }
    }

    fn compare(
        &mut self,
        ocg: &'w MeshOcg,
        gateways: &[CheckedGateway<'w>],
        certificates: &Certificates<'w, '_>,
        bundles: &mut CaBundles<'w>,
        cx: &ResolveContext<'w, '_>,
    ) {
        let MeshOcg { trust_bundle } = ocg;
        let found = match &trust_bundle.namespace {
            Some(namespace) => mesh::find_bundle(trust_bundle, namespace, bundles, cx),
            None => Err(
                "namespace is missing; it is required because an XMesh is cluster-scoped".into(),
            ),
        };
        let bundle = match found {
            Ok(bundle) => bundle,
            Err(why) => {
                let mut why = format!("spec.ocg.trustBundle: {why}");
                if self.is_published {
                    why.push_str(
                        "; the controller writes it once it leads and has permission \
                        (controller/deploy/ocg-bundles.yaml)",
                    );
                }
                return self.resolved.refuse(Reason::InvalidTrustBundle, why);
            }
        };
        for gateway in gateways {
            let meshed = gateway.mesh.is_some() && self.is_about(gateway);
            let key = gateway.client_key.as_deref().filter(|_| meshed);
            if let Some(shown) = key.and_then(|key| certificates.named(key)) {
                let name = gateway.name().to_string();
                let paths = trust_paths::paths_to(&shown.pair.certificate_chain, &bundle.pem);
                if paths.is_empty() {
                    self.untrusted.push(name);
                } else {
                    self.trusted.push(SignatureTrust { of: name, paths });
                }
            }
        }
        self.bundle = bundle.name;
    }

    fn trust_in(&self, gateway: &str) -> Option<&SignatureTrust> {
        self.trusted.iter().find(|trust| trust.of == gateway)
    }

    fn is_about(&self, gateway: &CheckedGateway<'_>) -> bool {
        let name = gateway.name();
        let is_it = |it: &GatewayRef| it.namespace == name.namespace && it.name == name.name;
        self.gateways.is_empty() || self.gateways.iter().any(is_it)
    }

    fn describe(&self) -> String {
        format!(
            "{} (trusted by XMesh {}, as configured by {})",
            self.bundle, self.mesh, self.source
        )
    }

    pub(crate) fn of_all(&self, generation: i64) -> Option<Condition> {
        let type_ = ConditionType::ClientCertificateTrusted;
        if !self.accepted.good() || self.trusted.is_empty() && self.untrusted.is_empty() {
            return None;
        }
        let names: Vec<&str> = self.trusted.iter().map(|it| it.of.as_str()).collect();
        let (status, reason, message) = if self.untrusted.is_empty() {
            let message = format!(
                "the certificates of these Gateways are signed by a CA certificate of {}: {}",
                self.bundle,
                names.join(", ")
            );
            (ConditionStatus::True, Reason::CertificateTrusted, message)
        } else {
            let message = format!(
                "the certificates of these Gateways are not signed by any CA certificate of {}, \
                so the mesh rejects them: {}; add their CA certificates to it",
                self.bundle,
                self.untrusted.join(", ")
            );
            let reason = Reason::CertificateNotTrusted;
            (ConditionStatus::False, reason, message)
        };
        let condition = Condition::new(type_, status, reason, &message, generation);
        Some(condition.resting_on(self.trusted.clone()))
    }
}

fn targets<'w>(policy: &'w MeshOcgPolicy, cx: &mut ResolveContext<'w, '_>) -> Vec<&'w str> {
    let mut found: Vec<&str> = Vec::new();
    let targets = policy.spec.target_refs.iter();
    for (i, target) in targets.take(limits::MAX_POLICY_TARGETS).enumerate() {
        let LocalPolicyTargetRef { group, kind, name } = target;
        if group != EXPERIMENTAL_GATEWAY_GROUP || kind != Kind::XMesh.as_str() {
            let message = format!(
                "spec.targetRefs[{i}]: {} {name:?} is not supported and has no effect; expected an XMesh of \
                 {EXPERIMENTAL_GATEWAY_GROUP}",
                names::group_kind(group, kind)
            );
            let key = Kind::MeshOcgPolicy.named(policy.metadata.key());
            cx.problems.add(key, message);
        } else if !found.contains(&name.as_str()) {
            found.push(name);
        }
    }
    found
}

fn check(policy: &MeshOcgPolicy, cx: &ResolveContext<'_, '_>) -> Verdict {
    let MeshOcgPolicySpec {
        target_refs,
        // Trust is checked separately for each targeted mesh.
        ocg: _,
        gateways,
        publish,
    } = &policy.spec;
    let mut accepted = Verdict::default();
    if !cx.options.extra_minimal_ocg {
        accepted.refuse(Reason::UnsupportedValue, format!("spec.ocg {OFF}"));
    }
    let unknown = policy.metadata.unknown.refusal("");
    accepted.refuse_if(Reason::UnsupportedValue, unknown);
    for (field, count, range) in [
        (
            "spec.targetRefs",
            target_refs.len(),
            1..=limits::MAX_POLICY_TARGETS,
        ),
        (
            "spec.gateways",
            gateways.len(),
            0..=limits::MAX_OCG_GATEWAYS,
        ),
    ] {
        let number = limits::entries(field, count, range);
        accepted.refuse_if(Reason::Invalid, number.err());
    }
    if *publish == Some(true) && gateways.is_empty() {
        let why = "spec.publish needs spec.gateways: otherwise anyone who may create a Gateway \
            could make the mesh trust any authority";
        accepted.refuse(Reason::Invalid, why);
    }
    accepted
}
