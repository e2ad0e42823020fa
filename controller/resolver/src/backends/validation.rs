//! Reads the TLS validation settings of BackendTLSPolicies and XBackends. An unreadable setting is
//! an error, so that no check is ever skipped.

use std::sync::Arc;

use sesame_proto::schema::{self, TrustBundle};

use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use crate::syntax::{hostnames, limits};
use crate::tls::ca_bundles::{CaBundles, Combined, Reach};
use crate::tls::subject_alt_names::{self, AltNames};
use sesame_kinds::api::{BackendTlsValidation, Metadata, WellKnownCaCertificates};
use sesame_kinds::status::{Reason, Verdict};
use sesame_kinds::world::Kind;

pub(super) struct Validation<'w> {
    pub(super) of: &'w BackendTlsValidation,
    /// Path of the field that contains these settings.
    pub(super) at: &'static str,
    pub(super) kind: Kind,
    pub(super) metadata: &'w Metadata,
    /// Name patterns to accept in addition to the names in `of`.
    pub(super) patterns: Option<AltNames>,
}

impl<'w> Validation<'w> {
    /// Adds errors to the verdicts.
    pub(super) fn read(
        self,
        accepted: &mut Verdict,
        resolved: &mut Verdict,
        bundles: &mut CaBundles<'w>,
        cx: &mut ResolveContext<'w, '_>,
    ) -> (schema::BackendTls, Option<Arc<TrustBundle>>) {
        let BackendTlsValidation {
            ca_certificate_refs: _,
            well_known_ca_certificates: _,
            hostname,
            subject_alt_names,
        } = self.of;
        let at = self.at;
        if let Err(why) = hostnames::check_precise(hostname) {
            accepted.refuse(Reason::Invalid, format!("{at}.hostname {why}"));
        }
        let names = subject_alt_names::read(hostname, subject_alt_names, self.patterns.clone());
        let AltNames {
            dns_names,
            uris,
            dns_suffixes,
            uri_prefixes,
        } = match names {
            Ok(names) => names,
            Err(why) => {
                accepted.refuse(Reason::Invalid, format!("{at}.{why}"));
                AltNames::default()
            }
        };
        let bundle = self.trust_bundle(accepted, resolved, bundles, cx);
        let tls = schema::BackendTls {
            sni: hostname.clone(),
            trust_bundle: bundle
                .as_ref()
                .map(|bundle| bundle.name.clone())
                .unwrap_or_default(),
            dns_names,
            uris,
            dns_suffixes,
            uri_prefixes,
            ..schema::BackendTls::default()
        };
        (tls, bundle)
    }

    /// Returns `None` if the system's CA certificates apply, or after an error, which is added to
    /// the verdicts.
    fn trust_bundle(
        &self,
        accepted: &mut Verdict,
        resolved: &mut Verdict,
        bundles: &mut CaBundles<'w>,
        cx: &mut ResolveContext<'w, '_>,
    ) -> Option<Arc<TrustBundle>> {
        let Self {
            of,
            at,
            kind,
            metadata,
            patterns: _,
        } = self;
        let references = of.ca_certificate_refs.as_slice();
        let well_known = of.well_known_ca_certificates.as_ref();
        let well_known = well_known.filter(|value| !value.as_str().is_empty());
        let fault = match (references.len(), well_known) {
            (0, Some(WellKnownCaCertificates::System)) => return None,
            (0, Some(other)) => Some(format!(
                ".wellKnownCACertificates {:?} is not supported; expected System",
                other.as_str()
            )),
            (0, None) => Some(
                " has neither caCertificateRefs nor wellKnownCACertificates; set one".to_owned(),
            ),
            (_, Some(_)) => {
                Some(" has both caCertificateRefs and wellKnownCACertificates; set one".to_owned())
            }
            (count, None) => {
                limits::entries(".caCertificateRefs", count, 0..=limits::MAX_POLICY_CA_REFS).err()
            }
        };
        if let Some(why) = fault {
            accepted.refuse(Reason::Invalid, format!("{at}{why}"));
            return None;
        }
        let referrer = Referrer::new(*kind, &metadata.namespace);
        let Combined {
            bundle,
            faults,
            advice,
        } = bundles.combine(referrer, references, Reach::OwnNamespace, cx);
        if let Some(advice) = advice {
            let message = format!("{at}.caCertificateRefs: {advice}");
            cx.problems.add(kind.named(metadata.key()), message);
        }
        for (reason, why) in faults {
            let reason = match reason {
                Reason::InvalidCaCertificateKind => Reason::InvalidKind,
                _ => Reason::InvalidCaCertificateRef,
            };
            resolved.refuse(reason, format!("{at}.{why}"));
        }
        if bundle.is_none() {
            let why = resolved.fault().map(|(_, why)| why);
            let message = format!(
                "no CA certificate to verify backends with: {}",
                why.unwrap_or_default()
            );
            accepted.refuse(Reason::NoValidCaCertificate, message);
        }
        bundle
    }
}
