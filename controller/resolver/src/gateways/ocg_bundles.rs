//! Collects the CA certificates of Gateways outside the cluster into ConfigMaps that meshes read.
//!
//! Never returns anything else from the Secrets. If a Gateway's CA certificates are unavailable,
//! the ConfigMap is not changed.

use std::collections::BTreeMap;

use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::CheckedGateway;
use super::mesh::BUNDLE_KEY;
use crate::context::{ResolveContext, ResolvedFor};
use crate::syntax::limits::{MAX_PEM_BYTES, MAX_PEM_CERTIFICATES};
use crate::tls::pem;
use sesame_kinds::api::{ConfigMap, GatewayRef, MeshOcgPolicy, NamespacedName, OCG_BUNDLE_LABEL};
use sesame_kinds::status::{Reason, Verdict};

/// A ConfigMap from which a mesh reads the Gateways' CA certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OcgBundle {
    /// Name of the MeshOCGPolicy that requests the ConfigMap.
    pub policy: String,
    /// UID of the policy, which owns the ConfigMap.
    pub uid: String,
    /// ConfigMap key that holds the certificates.
    pub key: String,
    /// The certificates, or `None` to leave the ConfigMap unchanged.
    pub pem: Option<String>,
    /// True if the existing ConfigMap already has this content.
    pub is_written: bool,
}

/// The requested ConfigMaps, keyed by name.
pub type OcgBundles = BTreeMap<NamespacedName, OcgBundle>;

pub(super) fn add(
    policy: &MeshOcgPolicy,
    gateways: &[CheckedGateway<'_>],
    bundles: &mut OcgBundles,
    resolved: &mut Verdict,
    cx: &ResolveContext<'_, '_>,
) {
    let bundle = &policy.spec.ocg.trust_bundle;
    let namespace = bundle.namespace.clone().unwrap_or_default();
    let name = NamespacedName::new(&namespace, &bundle.name);
    let mut refuse = |why: String| resolved.refuse(Reason::InvalidTrustBundle, why);
    if cx.options.resolved_for == ResolvedFor::Host {
        return refuse(
            "spec.publish: hosts do not write ConfigMaps; create this one yourself".to_owned(),
        );
    }
    if namespace.is_empty() || namespace == cx.options.namespace {
        return;
    }
    if let Some(other) = bundles.get(&name) {
        return refuse(format!(
            "spec.publish: ConfigMap {name} is already written for MeshOCGPolicy {}",
            other.policy
        ));
    }
    let there = cx.world.config_maps.get(&namespace, &bundle.name);
    let label = |map: &ConfigMap| map.metadata.labels.get(OCG_BUNDLE_LABEL).is_some();
    if there.is_some_and(|map| !label(map)) {
        return refuse(format!(
            "spec.publish: ConfigMap {name} was not written by this controller and is left \
            unchanged; name another one, or delete it"
        ));
    }
    let pem = authorities(&policy.spec.gateways, gateways, cx);
    if let Err(why) = &pem {
        refuse(format!(
            "spec.publish: {why}; ConfigMap {name} is left unchanged"
        ));
    }
    let mut wanted = OcgBundle::of(policy);
    wanted.pem = pem.ok();
    let written = there.and_then(|map| map.data.get(&wanted.key));
    wanted.is_written = written.is_some() && written == wanted.pem.as_ref();
    bundles.insert(name, wanted);
}

/// Keeps the ConfigMap of a policy that currently has no effect.
pub(super) fn keep(policy: &MeshOcgPolicy, bundles: &mut OcgBundles) {
    let bundle = &policy.spec.ocg.trust_bundle;
    if let Some(namespace) = &bundle.namespace {
        let name = NamespacedName::new(namespace, &bundle.name);
        bundles.entry(name).or_insert_with(|| OcgBundle::of(policy));
    }
}

impl OcgBundle {
    fn of(policy: &MeshOcgPolicy) -> Self {
        let key = policy.spec.ocg.trust_bundle.bundle_key.as_deref();
        Self {
            policy: policy.metadata.name.clone(),
            uid: policy.metadata.uid.to_string(),
            key: key.unwrap_or(BUNDLE_KEY).to_owned(),
            pem: None,
            is_written: false,
        }
    }
}

/// Returns the Gateways' CA certificates as PEM, without duplicates.
fn authorities(
    names: &[GatewayRef],
    gateways: &[CheckedGateway<'_>],
    cx: &ResolveContext<'_, '_>,
) -> Result<String, String> {
    let mut all: Vec<String> = Vec::new();
    for GatewayRef { namespace, name } in names {
        let name = NamespacedName::new(namespace, name);
        let gateway = gateways.iter().find(|it| it.name() == name);
        let gateway =
            gateway.ok_or_else(|| format!("Gateway {name} is not served by this controller"))?;
        let key = gateway.client_key.as_deref().ok_or_else(|| {
            format!("Gateway {name} has no certificate in spec.tls.backend.clientCertificateRef")
        })?;
        let secret = key
            .strip_prefix("Secret/")
            .and_then(|key| key.split_once('/'));
        let secret = secret.and_then(|(namespace, name)| cx.world.secrets.get(namespace, name));
        let text = secret.and_then(|secret| secret.get("ca.crt"));
        let text = text.ok_or_else(|| {
            format!("{key} of Gateway {name} has no ca.crt; add the CA certificate that signed its tls.crt")
        })?;
        let gateway_certificates =
            certificates(text).map_err(|why| format!("ca.crt of {key} {why}"))?;
        for certificate in gateway_certificates {
            if !all.contains(&certificate) {
                all.push(certificate);
            }
        }
    }
    let text = all.concat();
    if all.len() > MAX_PEM_CERTIFICATES || text.len() > MAX_PEM_BYTES {
        return Err(format!(
            "too many CA certificates for the Gateways: {} ({} bytes in total), maximum {MAX_PEM_CERTIFICATES} ({MAX_PEM_BYTES} bytes)",
            all.len(),
            text.len()
        ));
    }
    Ok(text)
}

/// Re-encodes each certificate as canonical PEM.
fn certificates(text: &[u8]) -> Result<Vec<String>, String> {
    let marker = b"PRIVATE KEY-----";
    if text.windows(marker.len()).any(|part| part == marker) {
        return Err(
            "contains a private key, which belongs only in tls.key; nothing is published"
                .to_owned(),
        );
    }
    let mut found = Vec::new();
    for (i, der) in pem::certificates(text)?.iter().enumerate() {
        let (rest, certificate) =
            X509Certificate::from_der(der).map_err(|_| format!("certificate {i} is malformed"))?;
        if !certificate.is_ca() {
            return Err(format!(
                "certificate {i} is not a CA certificate (basic constraints), so it must not sign \
                others"
            ));
        }
        let whole = der.get(..der.len() - rest.len()).unwrap_or_default();
        found.push(pem::encode_certificates(&[whole.into()]));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    #[test]
    fn nothing_but_ca_certificates_is_taken() {
        let key = KeyPair::generate().expect("a key");
        let signed = |ca: bool| {
            let mut params = CertificateParams::new(vec!["a.test".to_owned()]).expect("names");
            if ca {
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            }
            params.self_signed(&key).expect("a certificate").pem()
        };
        let (authority, leaf) = (signed(true), signed(false));
        let taken = |text: &str| certificates(text.as_bytes());
        let found = taken(&format!("about it\n{authority}")).expect("an authority");
        assert_eq!(found.len(), 1);
        assert!(!found.concat().contains("about"), "{found:?}");
        for (bad, expected) in [
            (
                format!("{authority}{}", key.serialize_pem()),
                "a private key",
            ),
            (
                format!("{authority}{leaf}"),
                "certificate 1 is not a CA certificate",
            ),
            (String::new(), "contains no PEM certificate"),
        ] {
            let why = taken(&bad).expect_err(expected);
            assert!(why.contains(expected), "{why}");
            assert!(!why.contains("MI"), "{why}");
        }
    }
}
