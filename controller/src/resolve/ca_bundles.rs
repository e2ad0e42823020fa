//! CA certificates out of ConfigMaps: found, permitted, read and checked, each ConfigMap once.

use std::collections::HashMap;
use std::sync::Arc;

use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::context::Context;
use super::grants::{Referrer, Target};
use super::names;
use super::pem;
use crate::api::{ConfigMap, NamespacedName, ObjectRef};
use crate::status::Reason;

/// Certificates as canonical PEM each, or what is wrong with the ConfigMap.
type Parsed = Result<Arc<[String]>, String>;

/// Where certificates are from, and the certificates; or why there are none.
type Found = Result<(String, Arc<[String]>), (Reason, String)>;

/// The bundles that were read so far.
#[derive(Default)]
pub(super) struct CaBundles<'w>(HashMap<&'w NamespacedName, Parsed>);

impl<'w> CaBundles<'w> {
    /// The certificates that `reference` means where `referrer` says it, and the name of where they are from.
    pub(super) fn get(
        &mut self,
        referrer: Referrer<'w>,
        reference: &'w ObjectRef,
        cx: &Context<'w, '_>,
    ) -> Found {
        let ObjectRef {
            group,
            kind,
            name,
            namespace,
        } = reference;
        let group = group.as_deref().unwrap_or_default();
        let kind = kind.as_deref().unwrap_or_default();
        if !group.is_empty() || kind != "ConfigMap" {
            return Err((
                Reason::InvalidCaCertificateKind,
                format!(
                    "{} {name:?} is not supported; expected a ConfigMap of the core group",
                    names::group_kind(group, kind)
                ),
            ));
        }
        let namespace = namespace.as_deref().unwrap_or(referrer.namespace);
        let target = Target {
            group: "",
            kind: "ConfigMap",
            namespace,
            name,
        };
        if !cx.grants.permit(referrer, target) {
            return Err((
                Reason::RefNotPermitted,
                format!(
                    "no ReferenceGrant in namespace {namespace:?} lets a {} of namespace {:?} refer to ConfigMap \
                     {name:?}",
                    referrer.kind, referrer.namespace
                ),
            ));
        }
        let invalid = |why: String| (Reason::InvalidCaCertificateRef, why);
        names::check_object(namespace, name).map_err(invalid)?;
        let key = NamespacedName::new(namespace, name);
        let Some((key, map)) = cx.world.config_maps.get_key_value(&key) else {
            return Err(invalid(format!("ConfigMap {key} does not exist")));
        };
        let parsed = self.0.entry(key).or_insert_with(|| parse(map));
        let certificates = parsed
            .clone()
            .map_err(|why| invalid(format!("ConfigMap {key} {why}")))?;
        Ok((format!("ConfigMap/{key}"), certificates))
    }
}

/// Reads and checks one ConfigMap. The error completes the sentence "ConfigMap x ...".
fn parse(map: &ConfigMap) -> Parsed {
    let text = map.data.get("ca.crt").ok_or("has no key ca.crt")?;
    let certificates = pem::certificates(text.as_bytes()).map_err(|why| format!("ca.crt {why}"))?;
    for (i, certificate) in certificates.iter().enumerate() {
        X509Certificate::from_der(certificate)
            .map_err(|_| format!("ca.crt certificate {i} is malformed"))?;
    }
    Ok(certificates
        .iter()
        .map(|certificate| pem::encode_certificates(std::slice::from_ref(certificate)))
        .collect())
}
