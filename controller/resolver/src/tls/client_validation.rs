//! Resolves client validation (`Gateway.spec.tls.frontend`). The default applies to all ports
//! without their own entry. An invalid reference affects only the listeners that use it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sesame_proto::schema::tls_termination::ClientMode;
use sesame_proto::schema::{TlsTermination, TrustBundle};

use super::ca_bundles::{CaBundles, Combined, Reach};
use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use crate::syntax::limits;
use sesame_kinds::api::{
    FrontendTls, FrontendTlsConfig, FrontendTlsPort, FrontendTlsValidation, FrontendValidationMode,
};
use sesame_kinds::status::{Grounds, Reason, Verdict};

#[derive(Debug, Default)]
pub(crate) struct FrontendValidation {
    default: PortValidation,
    ports: HashMap<u16, PortValidation>,
    /// True if any port accepts clients without a valid certificate.
    pub(crate) insecure: bool,
}

#[derive(Debug, Default)]
struct PortValidation {
    unsupported: Option<String>,
    faults: Vec<Grounds>,
    advice: Option<String>,
    /// `None` if clients are not validated, or if no reference is valid.
    bundle: Option<Arc<TrustBundle>>,
    wanted: bool,
    insecure_fallback: bool,
}

impl FrontendValidation {
    pub(crate) fn resolve<'w>(
        referrer: Referrer<'w>,
        frontend: Option<&'w FrontendTls>,
        bundles: &mut CaBundles<'w>,
        cx: &ResolveContext<'w, '_>,
    ) -> Self {
        let Some(FrontendTls { default, per_port }) = frontend else {
            return Self::default();
        };
        let default =
            PortValidation::resolve("spec.tls.frontend.default", referrer, default, bundles, cx);
        let mut ports: HashMap<u16, PortValidation> = HashMap::new();
        for (i, FrontendTlsPort { port, tls }) in per_port.iter().enumerate() {
            let at = format!("spec.tls.frontend.perPort[{i}]");
            // An entry with an invalid port applies to no listener.
            let Ok(port) = u16::try_from(*port) else {
                continue;
            };
            let outcome = PortValidation::resolve(&at, referrer, tls, bundles, cx);
            ports
                .entry(port)
                .and_modify(|first| {
                    first.unsupported = Some(format!("{at}.port {port} is listed twice"));
                })
                .or_insert(outcome);
        }
        let insecure =
            default.insecure_fallback || ports.values().any(|outcome| outcome.insecure_fallback);
        Self {
            default,
            ports,
            insecure,
        }
    }

    /// Returns a warning, if any.
    pub(crate) fn apply(
        &self,
        port: u16,
        (accepted, resolved): (&mut Verdict, &mut Verdict),
        termination: &mut TlsTermination,
    ) -> Option<&str> {
        let PortValidation {
            unsupported,
            faults,
            advice,
            bundle,
            wanted,
            insecure_fallback,
        } = self.ports.get(&port).unwrap_or(&self.default);
        for (reason, message) in faults {
            resolved.refuse(*reason, message);
        }
        if let Some(message) = unsupported {
            accepted.refuse(Reason::UnsupportedValue, message);
        }
        match bundle {
            Some(bundle) => {
                termination.client_trust_bundle.clone_from(&bundle.name);
                if *insecure_fallback {
                    termination.client_mode = ClientMode::OptionalUnverified.into();
                }
            }
            None if *wanted => {
                let messages: Vec<&str> =
                    faults.iter().map(|(_, message)| message.as_str()).collect();
                accepted.refuse(
                    Reason::NoValidCaCertificate,
                    format!(
                        "no valid CA certificate for client validation: {}",
                        messages.join("; ")
                    ),
                );
            }
            None => {}
        }
        advice.as_deref()
    }

    pub(crate) fn bundles(&self) -> BTreeMap<&str, &TrustBundle> {
        std::iter::once(&self.default)
            .chain(self.ports.values())
            .filter_map(|outcome| outcome.bundle.as_deref())
            .map(|bundle| (bundle.name.as_str(), bundle))
            .collect()
    }
}

impl PortValidation {
    fn resolve<'w>(
        at: &str,
        referrer: Referrer<'w>,
        config: &'w FrontendTlsConfig,
        bundles: &mut CaBundles<'w>,
        cx: &ResolveContext<'w, '_>,
    ) -> Self {
        let FrontendTlsConfig { validation } = config;
        let Some(FrontendTlsValidation {
            ca_certificate_refs,
            mode,
        }) = validation
        else {
            return Self::default();
        };
        let mut outcome = Self {
            wanted: true,
            ..Self::default()
        };
        match mode {
            None | Some(FrontendValidationMode::AllowValidOnly) => {}
            Some(FrontendValidationMode::AllowInsecureFallback) => outcome.insecure_fallback = true,
            Some(FrontendValidationMode::Other(other)) => {
                outcome.unsupported = Some(format!(
                    "{at}.validation.mode {other:?} is unknown; expected AllowValidOnly or AllowInsecureFallback"
                ));
            }
        }
        let at = format!("{at}.validation");
        let field = format!("{at}.caCertificateRefs");
        if let Err(why) = limits::entries(
            &field,
            ca_certificate_refs.len(),
            1..=limits::MAX_CLIENT_CA_REFS,
        ) {
            outcome.unsupported = Some(why);
            return outcome;
        }
        let Combined {
            bundle,
            faults,
            advice,
        } = bundles.combine(referrer, ca_certificate_refs, Reach::Granted, cx);
        outcome.bundle = bundle;
        outcome.advice = advice.map(|advice| format!("{at}.caCertificateRefs: {advice}"));
        outcome.faults = faults
            .into_iter()
            .map(|(reason, why)| (reason, format!("{at}.{why}")))
            .collect();
        outcome
    }
}
