//! CA certificates from ConfigMaps: looked up, permitted, read and checked, each ConfigMap once.

use std::collections::HashMap;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use sesame_proto::schema::TrustBundle;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::pem;
use crate::api::{ConfigMap, NamespacedName, ObjectRef};
use crate::resolve::context::ResolveContext;
use crate::resolve::context::grants::Referrer;
use crate::resolve::context::references::Expected;
use crate::status::{Grounds, Reason};

/// The objects that references to CA certificates name.
const CONFIG_MAPS: Expected = Expected {
    kind: "ConfigMap",
    default: "",
    wrong_kind: Reason::InvalidCaCertificateKind,
    wrong_name: Reason::InvalidCaCertificateRef,
};

/// Key of a ConfigMap that references to it mean.
const DEFAULT_KEY: &str = "ca.crt";

/// The certificates, each as canonical PEM, or the fault of the ConfigMap.
type ParsedConfigMap = Result<Arc<[String]>, String>;

/// The bundle of several references together.
#[derive(Debug, Default)]
pub(crate) struct Combined {
    /// None if no reference is valid.
    pub(crate) bundle: Option<TrustBundle>,
    /// Faults of the references that are not valid; each message starts with the reference, as `caCertificateRefs[0]: `.
    pub(crate) faults: Vec<Grounds>,
}

/// The namespaces that references may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All namespaces from which a ReferenceGrant permits it.
    Granted,
    /// The referrer's namespace only.
    OwnNamespace,
}

/// The bundles that were read so far.
#[derive(Default)]
pub(crate) struct CaBundles<'w>(HashMap<(&'w str, &'w str, &'w str), ParsedConfigMap>);

impl<'w> CaBundles<'w> {
    /// Returns the certificates of all references, each once, in their order. The bundle is named after their sources, so that
    /// the same references make the same bundle.
    pub(crate) fn combine(
        &mut self,
        referrer: Referrer<'w>,
        references: &'w [ObjectRef],
        reach: Reach,
        cx: &ResolveContext<'w, '_>,
    ) -> Combined {
        let mut combined = Combined::default();
        let mut names = Vec::new();
        let mut certificates: Vec<String> = Vec::new();
        for (i, reference) in references.iter().enumerate() {
            let elsewhere = reference.namespace.as_deref().filter(|namespace| {
                reach == Reach::OwnNamespace && *namespace != referrer.namespace
            });
            let found = match elsewhere {
                Some(namespace) => Err((
                    Reason::InvalidCaCertificateRef,
                    format!(
                        "namespace {namespace:?} must not be named; expected a ConfigMap of namespace {:?}",
                        referrer.namespace
                    ),
                )),
                None => self.get(referrer, reference, cx),
            };
            match found {
                Ok((name, found)) => {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                    for certificate in found.iter() {
                        if !certificates.contains(certificate) {
                            certificates.push(certificate.clone());
                        }
                    }
                }
                Err((reason, why)) => combined
                    .faults
                    .push((reason, format!("caCertificateRefs[{i}]: {why}"))),
            }
        }
        combined.bundle = (!certificates.is_empty()).then(|| TrustBundle {
            name: names.join("+"),
            pem: certificates.concat(),
        });
        combined
    }

    /// Returns the certificates that `reference` of `referrer` names, and the name of their source.
    fn get(
        &mut self,
        referrer: Referrer<'w>,
        reference: &'w ObjectRef,
        cx: &ResolveContext<'w, '_>,
    ) -> Result<(String, Arc<[String]>), Grounds> {
        let (namespace, name) = CONFIG_MAPS.find(reference.into(), referrer, &cx.grants)?;
        let invalid = |why: String| (Reason::InvalidCaCertificateRef, why);
        let certificates = self
            .read(namespace, name, DEFAULT_KEY, cx)
            .map_err(invalid)?;
        Ok((format!("ConfigMap/{namespace}/{name}"), certificates))
    }

    /// Returns the bundle in a key of a ConfigMap, wherever that is. The error is a sentence.
    pub(crate) fn in_key(
        &mut self,
        namespace: &'w str,
        name: &'w str,
        key: &'w str,
        cx: &ResolveContext<'w, '_>,
    ) -> Result<TrustBundle, String> {
        let certificates = self.read(namespace, name, key, cx)?;
        Ok(TrustBundle {
            name: format!("ConfigMap/{namespace}/{name}/{key}"),
            pem: certificates.concat(),
        })
    }

    fn read(
        &mut self,
        namespace: &'w str,
        name: &'w str,
        key: &'w str,
        cx: &ResolveContext<'w, '_>,
    ) -> ParsedConfigMap {
        let object = NamespacedName::new(namespace, name);
        let Some(map) = cx.world.config_maps.get(namespace, name) else {
            return Err(format!("ConfigMap {object} does not exist"));
        };
        let parsed = self.0.entry((namespace, name, key));
        let parsed = parsed.or_insert_with(|| parse(map, key));
        parsed
            .clone()
            .map_err(|why| format!("ConfigMap {object} {why}"))
    }
}

/// Reads and checks one ConfigMap. The error completes the sentence "ConfigMap x ...".
fn parse(map: &ConfigMap, key: &str) -> ParsedConfigMap {
    let text = map.data.get(key).ok_or(format!("has no key {key}"))?;
    let certificates = pem::certificates(text.as_bytes()).map_err(|why| format!("{key} {why}"))?;
    let one = |(i, certificate): (usize, &CertificateDer<'_>)| {
        let (rest, _) = X509Certificate::from_der(certificate)
            .map_err(|_| format!("{key} certificate {i} is malformed"))?;
        // Old tools append data to a certificate that is no part of it.
        let length = certificate.len() - rest.len();
        let certificate = certificate.get(..length).unwrap_or_default();
        Ok(pem::encode_certificates(&[certificate.into()]))
    };
    certificates.iter().enumerate().map(one).collect()
}
