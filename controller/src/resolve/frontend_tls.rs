//! How clients of HTTPS listeners are validated (`Gateway.spec.tls.frontend`).
//!
//! The default is for every HTTPS listener; what a port has of its own replaces it there. A bad reference
//! harms only the listeners it applies to.

use std::collections::{BTreeMap, HashMap};

use sesame_proto::schema::{TlsTermination, TrustBundle};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::context::Context;
use super::grants::Target;
use super::listeners::Owner;
use super::pem;
use crate::api::{
    FrontendTls, FrontendTlsConfig, FrontendTlsPort, FrontendTlsValidation, FrontendValidationMode,
    NamespacedName, ObjectRef,
};
use crate::status::{Reason, Verdict};

/// What applies to which port.
#[derive(Debug, Default)]
pub(super) struct FrontendValidation {
    default: Outcome,
    ports: HashMap<u16, Outcome>,
    /// Whether some port lets clients in without a valid certificate.
    pub(super) insecure: bool,
}

/// One validation, with its references looked up.
#[derive(Debug, Default)]
struct Outcome {
    unsupported: Option<String>,
    faults: Vec<(Reason, String)>,
    /// None: clients are not validated, or no reference is any good.
    bundle: Option<TrustBundle>,
    wanted: bool,
    insecure_fallback: bool,
}

impl FrontendValidation {
    pub(super) fn resolve<'w>(
        owner: &Owner<'w>,
        frontend: Option<&'w FrontendTls>,
        cx: &Context<'w, '_>,
    ) -> Self {
        let Some(FrontendTls { default, per_port }) = frontend else {
            return Self::default();
        };
        let default = Outcome::resolve("spec.tls.frontend.default", owner, default, cx);
        let mut ports: HashMap<u16, Outcome> = HashMap::new();
        for (i, FrontendTlsPort { port, tls }) in per_port.iter().enumerate() {
            let at = format!("spec.tls.frontend.perPort[{i}]");
            // A port out of range has no listener either.
            let Ok(port) = u16::try_from(*port) else {
                continue;
            };
            let outcome = Outcome::resolve(&at, owner, tls, cx);
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

    /// Puts what applies to an HTTPS listener into its termination and verdicts.
    pub(super) fn apply(
        &self,
        port: u16,
        accepted: &mut Verdict,
        resolved: &mut Verdict,
        termination: &mut TlsTermination,
    ) {
        let Outcome {
            unsupported,
            faults,
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
                termination.client_insecure_fallback = *insecure_fallback;
            }
            None if *wanted => {
                let messages: Vec<&str> =
                    faults.iter().map(|(_, message)| message.as_str()).collect();
                accepted.refuse(
                    Reason::NoValidCaCertificate,
                    format!(
                        "no CA certificate to validate clients with: {}",
                        messages.join("; ")
                    ),
                );
            }
            None => {}
        }
    }

    /// All bundles, by name.
    pub(super) fn bundles(&self) -> BTreeMap<&str, &TrustBundle> {
        std::iter::once(&self.default)
            .chain(self.ports.values())
            .filter_map(|outcome| outcome.bundle.as_ref())
            .map(|bundle| (bundle.name.as_str(), bundle))
            .collect()
    }
}

impl Outcome {
    fn resolve<'w>(
        at: &str,
        owner: &Owner<'w>,
        config: &'w FrontendTlsConfig,
        cx: &Context<'w, '_>,
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
        let count = ca_certificate_refs.len();
        if !(1..=16).contains(&count) {
            outcome.unsupported = Some(format!(
                "{at}.validation.caCertificateRefs has {count} entries; 1 to 16 are allowed"
            ));
            return outcome;
        }
        let mut names = Vec::new();
        let mut certificates: Vec<String> = Vec::new();
        for (i, reference) in ca_certificate_refs.iter().enumerate() {
            match ca_certificates(owner, reference, cx) {
                Ok((name, found)) => {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                    for certificate in found {
                        if !certificates.contains(&certificate) {
                            certificates.push(certificate);
                        }
                    }
                }
                Err((reason, why)) => {
                    let message = format!("{at}.validation.caCertificateRefs[{i}]: {why}");
                    outcome.faults.push((reason, message));
                }
            }
        }
        outcome.bundle = (!certificates.is_empty()).then(|| TrustBundle {
            name: names.join("+"),
            pem: certificates.concat(),
        });
        outcome
    }
}

/// The certificates of one reference, as PEM each, and the name of where they are from.
fn ca_certificates<'w>(
    owner: &Owner<'w>,
    reference: &'w ObjectRef,
    cx: &Context<'w, '_>,
) -> Result<(String, Vec<String>), (Reason, String)> {
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
                "{group}/{kind} {name:?} is not supported; expected a ConfigMap of the core group"
            ),
        ));
    }
    let namespace = namespace.as_deref().unwrap_or(owner.namespace);
    let target = Target {
        group: "",
        kind: "ConfigMap",
        namespace,
        name,
    };
    if !cx.grants.permit(owner.referrer(), target) {
        return Err((
            Reason::RefNotPermitted,
            format!(
                "no ReferenceGrant in namespace {namespace:?} lets a {} of namespace {:?} refer to ConfigMap {name:?}",
                owner.kind, owner.namespace
            ),
        ));
    }
    let key = NamespacedName::new(namespace, name);
    let invalid = |why: String| {
        (
            Reason::InvalidCaCertificateRef,
            format!("ConfigMap {key} {why}"),
        )
    };
    let map = cx
        .world
        .config_maps
        .get(&key)
        .ok_or_else(|| invalid("does not exist".to_owned()))?;
    let pem = map
        .data
        .get("ca.crt")
        .ok_or_else(|| invalid("has no key ca.crt".to_owned()))?;
    let certificates =
        pem::certificates(pem.as_bytes()).map_err(|why| invalid(format!("ca.crt {why}")))?;
    for (i, certificate) in certificates.iter().enumerate() {
        X509Certificate::from_der(certificate)
            .map_err(|_| invalid(format!("ca.crt certificate {i} is malformed")))?;
    }
    let encoded = certificates
        .iter()
        .map(|certificate| pem::encode_certificates(std::slice::from_ref(certificate)))
        .collect();
    Ok((format!("ConfigMap/{key}"), encoded))
}
