//! Settings for Ingresses and HTTPProxies.

use std::collections::BTreeSet;

use sesame_proto::tls_parameters::{CIPHER_SUITES, is_cipher_suite};

use super::parameters::{self, Scope};
use crate::api::{
    GatewayClass, GatewayRef, IngressSettings, IngressTlsSettings, IngressWatch, OpenEnum,
    ProxyClass, TlsVersion,
};
use crate::resolve::context::Options;
use crate::resolve::syntax::{limits, names};
use crate::status::Verdict;
use crate::world::World;

/// As in the schema.
const MAX_CLASSES: usize = 64;
/// As in the schema.
const MAX_NAMESPACES: usize = 256;

const REPORT_ONLY: &str = "spec.ingress.watch is Report, so Ingresses and HTTPProxies are not \
                           served; this output treats them as with Serve";

pub(crate) fn serves(settings: Option<&IngressSettings>, options: &Options) -> bool {
    match settings.and_then(|it| it.watch.as_ref()) {
        None | Some(IngressWatch::Serve) => true,
        Some(IngressWatch::Report) => options.preview,
        Some(_) => false,
    }
}

/// Returns a note for the output of commands that set [`Options::preview`], or `None` unless
/// `spec.ingress.watch` is `Report`.
pub fn report_only(world: &World, options: &Options) -> Option<&'static str> {
    let watch = settings(world, options)?.watch.as_ref()?;
    (*watch == IngressWatch::Report).then_some(REPORT_ONLY)
}

/// Prefers the controller's own configuration, then the oldest GatewayClass with valid parameters.
pub(crate) fn settings<'o>(world: &'o World, options: &'o Options) -> Option<&'o IngressSettings> {
    let own = options.configuration.as_deref();
    if let Some(own) = own.and_then(|it| it.spec.ingress.as_ref()) {
        return Some(own);
    }
    let classes = world.gateway_classes.iter().map(AsRef::as_ref);
    let ours = classes.filter(|class| *class.spec.controller_name == *options.controller_name);
    let mut ours: Vec<&GatewayClass> = ours.collect();
    ours.sort_by(|a, b| a.metadata.by_age(&b.metadata));
    ours.into_iter().find_map(|class| {
        let reference = class.spec.parameters_ref.as_ref();
        let mut discarded = Verdict::default();
        let found = parameters::find("", reference, Scope::Named, world, &mut discarded);
        found.valid()?.spec.ingress.as_ref()
    })
}

/// Returns errors with field paths relative to `spec.ingress`.
pub(super) fn faults(settings: &IngressSettings) -> Vec<String> {
    let IngressSettings {
        watch,
        http,
        https,
        gateway_ref,
        classes,
        root_namespaces,
        duplicates,
        invalid,
        missing_backend,
        disable_permit_insecure: _,
        fallback_certificate,
        tls,
    } = settings;
    let mut faults = serving_faults(watch.as_ref(), *http, *https);
    faults.extend(fault_of("gatewayRef", gateway_ref.as_ref().map(named)));
    let secret = fallback_certificate.as_ref();
    let secret = secret.map(|it| (it.namespace.as_str(), it.name.as_str()));
    faults.extend(fault_of("fallbackCertificate", secret));
    faults.extend(class_faults(classes.as_deref().unwrap_or_default()));
    let namespaces = root_namespaces.as_deref().unwrap_or_default();
    let number = limits::entries("rootNamespaces", namespaces.len(), 0..=MAX_NAMESPACES);
    faults.extend(number.err());
    faults.extend(tls.iter().flat_map(tls_faults));
    faults.extend(word_fault("duplicates", duplicates.as_ref()));
    faults.extend(word_fault("invalid", invalid.as_ref()));
    faults.extend(word_fault("missingBackend", missing_backend.as_ref()));
    faults
}

fn word_fault(field: &str, value: Option<&impl OpenEnum>) -> Option<String> {
    let (value, words) = value?.unknown()?;
    let words = words.join(", ");
    Some(format!("{field} {value:?} is not one of {words}"))
}

fn class_faults(classes: &[ProxyClass]) -> Vec<String> {
    let mut faults = Vec::new();
    faults.extend(limits::entries("classes", classes.len(), 0..=MAX_CLASSES).err());
    let mut seen = BTreeSet::new();
    for (i, class) in classes.iter().enumerate().take(MAX_CLASSES) {
        let ProxyClass {
            name,
            gateway_ref,
            default: _,
        } = class;
        let field = format!("classes[{i}].gatewayRef");
        faults.extend(fault_of(&field, gateway_ref.as_ref().map(named)));
        if name.is_empty() || !seen.insert(name) {
            faults.push(format!(
                "classes[{i}].name {name:?}: expected a unique name that is not empty"
            ));
        }
    }
    if classes.iter().filter(|it| it.default == Some(true)).count() > 1 {
        faults.push("classes: several entries are the default; expected at most one".to_owned());
    }
    faults
}

fn fault_of(field: &str, name: Option<(&str, &str)>) -> Option<String> {
    let (namespace, name) = name?;
    let why = names::check_object(namespace, name).err()?;
    Some(format!("{field}: {why}"))
}

fn named(GatewayRef { namespace, name }: &GatewayRef) -> (&str, &str) {
    (namespace, name)
}

fn serving_faults(
    watch: Option<&IngressWatch>,
    http: Option<i32>,
    https: Option<i32>,
) -> Vec<String> {
    let mut faults: Vec<String> = word_fault("watch", watch).into_iter().collect();
    for (field, port) in [("http", http), ("https", https)] {
        if let Some(port) = port.filter(|port| names::port(*port).is_none()) {
            faults.push(format!("{field}: {port}: expected 1 to 65535"));
        }
    }
    let tls = https.unwrap_or(IngressSettings::HTTPS.into());
    let plain = http.unwrap_or(IngressSettings::HTTP.into());
    if tls == plain {
        faults.push(format!(
            "https: {tls}: expected another port than that of http"
        ));
    }
    faults
}

fn tls_faults(settings: &IngressTlsSettings) -> Vec<String> {
    let IngressTlsSettings {
        min_version,
        max_version,
        cipher_suites,
    } = settings;
    let mut faults = Vec::new();
    for (field, version) in [("minVersion", min_version), ("maxVersion", max_version)] {
        if let Some(TlsVersion::Other(text)) = version {
            faults.push(format!("tls.{field} {text:?} is not one of 1.2, 1.3"));
        }
    }
    if max_version.is_some() && min_version > max_version {
        let why = "tls.minVersion is newer than maxVersion: no client could connect";
        faults.push(why.to_owned());
    }
    let Some(suites) = cipher_suites else {
        return faults;
    };
    let number = limits::entries("tls.cipherSuites", suites.len(), 1..=CIPHER_SUITES.len());
    faults.extend(number.err());
    let mut seen = BTreeSet::new();
    for name in suites.iter().take(CIPHER_SUITES.len()) {
        if !is_cipher_suite(name) || !seen.insert(name) {
            let known = CIPHER_SUITES.join(", ");
            faults.push(format!(
                "tls.cipherSuites {name:?}: expected each once, of {known}"
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_tls_name_their_fields() {
        let names = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
        let suite = CIPHER_SUITES[0];
        let of = |min: Option<&str>, max: Option<&str>, cipher_suites| {
            let settings = IngressTlsSettings {
                min_version: min.map(TlsVersion::from),
                max_version: max.map(TlsVersion::from),
                cipher_suites,
            };
            tls_faults(&settings).join("; ")
        };
        assert_eq!(of(None, None, None), "");
        assert_eq!(of(Some("1.2"), Some("1.2"), names(&[suite])), "");
        assert_eq!(of(Some("1.3"), None, None), "");
        for (found, expected) in [
            (of(Some("1.1"), None, None), "tls.minVersion \"1.1\""),
            (
                of(None, Some("TLSv1.3"), None),
                "tls.maxVersion \"TLSv1.3\"",
            ),
            (
                of(Some("1.3"), Some("1.2"), None),
                "no client could connect",
            ),
            (of(None, None, names(&[])), "tls.cipherSuites has 0 entries"),
            (
                of(None, None, names(&["AES128-SHA"])),
                "tls.cipherSuites \"AES128-SHA\"",
            ),
            (of(None, None, names(&[suite, suite])), "expected each once"),
        ] {
            assert!(found.contains(expected), "{expected}: {found}");
        }
    }
}
