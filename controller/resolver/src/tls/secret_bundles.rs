//! Reads CA certificates and revocation lists from Secrets that HTTPProxies reference.

use std::sync::Arc;

use sesame_proto::schema::TrustBundle;
use sesame_proto::sizes::MAX_TRUST_BUNDLE_BYTES;

use super::authorities::{self, Authorities, Union, bundle};
use super::ca_bundles::CaBundles;
use super::certificates::SECRETS;
use super::revocation_lists;
use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use crate::context::references::CoreReference;
use crate::syntax::names::CA_KEY;
use sesame_kinds::status::{Grounds, Reason};

impl<'w> CaBundles<'w> {
    /// The flag in `revoked` is true if only leaf certificates are checked for revocation. The
    /// lists' issuers may be missing from `authorities`, because clients may send intermediate CAs.
    pub(crate) fn of_secrets(
        &mut self,
        referrer: Referrer<'w>,
        authorities: CoreReference<'w>,
        revoked: Option<(CoreReference<'w>, bool)>,
        cx: &ResolveContext<'w, '_>,
    ) -> Result<Arc<TrustBundle>, Grounds> {
        let certificates = secret(referrer, authorities, CA_KEY, cx)?;
        let leaf_only = revoked.is_some_and(|(_, leaf_only)| leaf_only);
        let lists = revoked.map(|(lists, _)| secret(referrer, lists, "crl.pem", cx));
        let lists = lists.transpose()?;
        let mut name = certificates.name.clone();
        if let Some(lists) = &lists {
            let leaf = if leaf_only { "/leaf" } else { "" };
            name = format!("{name}+{}{leaf}", lists.name);
        }
        if let Some(union) = self.unions.get(&name)
            && let Ok(bundle) = &union.bundle
        {
            return Ok(bundle.clone());
        }
        let invalid = |why: String| (Reason::NoValidCaCertificate, why);
        let read = lists.map(|lists| {
            let read = revocation_lists::read(lists.text);
            read.map_err(|why| broken(&lists.name, &why))
        });
        let read = read.transpose()?.unwrap_or_default();
        let (Authorities { certificates, crls }, _) =
            authorities::read(&certificates.name, certificates.text, read).map_err(invalid)?;
        let bundle = TrustBundle {
            crl_for_leaf_only: leaf_only,
            ..bundle(name.clone(), &certificates, &crls)
        };
        let size = bundle.pem.len() + bundle.crl.len();
        if size > MAX_TRUST_BUNDLE_BYTES {
            return Err(invalid(format!(
                "{name}: certificates and revocation lists take {size} bytes in total; at most {MAX_TRUST_BUNDLE_BYTES} are allowed"
            )));
        }
        let bundle = Arc::new(bundle);
        self.charge(referrer.namespace, &name, &bundle)
            .map_err(invalid)?;
        let union = Union {
            bundle: Ok(bundle.clone()),
            advice: None,
        };
        self.unions.insert(name, Arc::new(union));
        Ok(bundle)
    }
}

struct SecretEntry<'w> {
    /// `Secret/namespace/name/KEY`.
    name: String,
    text: &'w str,
}

fn secret<'w>(
    referrer: Referrer<'w>,
    reference: CoreReference<'w>,
    key: &str,
    cx: &ResolveContext<'w, '_>,
) -> Result<SecretEntry<'w>, Grounds> {
    let (namespace, name) = SECRETS.find(reference, referrer, &cx.grants)?;
    let entry = format!("Secret/{namespace}/{name}/{key}");
    let Some(secret) = cx.world.secrets.get(namespace, name) else {
        return Err(broken(&entry, "does not exist; create the Secret"));
    };
    if !["kubernetes.io/tls", "Opaque", ""].contains(&secret.type_.as_str()) {
        let why = format!(
            "has type {:?}; expected Opaque or kubernetes.io/tls",
            secret.type_
        );
        return Err(broken(&format!("Secret {namespace}/{name}"), &why));
    }
    let Some(text) = secret.get(key) else {
        return Err(broken(&entry, "does not exist: the Secret has no such key"));
    };
    let text = std::str::from_utf8(text);
    let text = text.map_err(|_| broken(&entry, "is not UTF-8; expected PEM"))?;
    Ok(SecretEntry { name: entry, text })
}

fn broken(name: &str, why: &str) -> Grounds {
    (Reason::NoValidCaCertificate, format!("{name} {why}"))
}
