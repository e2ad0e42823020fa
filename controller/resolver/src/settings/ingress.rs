//! Settings for Ingresses and HTTPProxies.

mod listeners;

use std::collections::BTreeSet;

use sesame_proto::schema::RateLimit;
use sesame_proto::tls_parameters::{CIPHER_SUITES, KEY_EXCHANGE_GROUPS};

use super::check;
use super::parameters::{self, Parameters, Scope};
use crate::context::{Options, ResolvedFor};
use crate::syntax::{limits, names};
use sesame_kinds::api::{
    ExtensionServiceRef, GatewayClass, GatewayRef, IngressBackendTls, IngressRateLimitService,
    IngressSettings, IngressTlsSettings, IngressWatch, OpenEnum, ProxyClass, SesameConfiguration,
    TlsVersion,
};
use sesame_kinds::status::Verdict;
use sesame_kinds::world::{LastParameter, World};

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
    let FoundSettings::Known(settings) = settings(world, options) else {
        return None;
    };
    let watch = settings?.watch.as_ref()?;
    (*watch == IngressWatch::Report).then_some(REPORT_ONLY)
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum FoundSettings<'o> {
    /// `None` if no configuration sets `spec.ingress`.
    Known(Option<&'o IngressSettings>),
    /// Parameters of this GatewayClass have been unusable since this process started. They might set `watch` or other restrictions, so no default may replace them.
    Unknown(&'o GatewayClass),
}

/// Prefers the controller's own configuration, then the parameters of the oldest GatewayClass.
pub(crate) fn settings<'o>(world: &'o World, options: &'o Options) -> FoundSettings<'o> {
    let own = options.configuration.as_deref();
    if let Some(own) = own.and_then(|it| it.spec.ingress.as_ref()) {
        return FoundSettings::Known(Some(own));
    }
    for class in classes_by_age(world, options) {
        let reference = class.spec.parameters_ref.as_ref();
        let mut discarded = Verdict::default();
        let found = match parameters::find("", reference, Scope::Named, world, &mut discarded) {
            Parameters::Absent => None,
            Parameters::Valid(found) => Some(found),
            Parameters::Refused => match parameters::remembered(world, &class.metadata.name) {
                LastParameter::Valid(last) => Some(&**last),
                LastParameter::Absent => None,
                LastParameter::Unknown => return FoundSettings::Unknown(class),
            },
        };
        if let Some(settings) = found.and_then(|it| it.spec.ingress.as_ref()) {
            return FoundSettings::Known(Some(settings));
        }
    }
    let valid = of_manifests(world, options).filter(|it| {
        let scope = Scope::Named;
        check::faults_of_parameters(it, scope).is_empty()
    });
    FoundSettings::Known(valid.and_then(|it| it.spec.ingress.as_ref()))
}

/// A configuration that implies a Gateway, even if the configuration is invalid.
pub(crate) struct ListenersSource<'o> {
    pub(crate) configuration: &'o SesameConfiguration,
    /// The class whose parameters the configuration is.
    pub(crate) class: Option<&'o str>,
    /// True if the configuration belongs to the controller itself.
    pub(crate) is_own: bool,
}

/// Looks in the same order as [`settings`].
pub(crate) fn listeners_source<'o>(
    world: &'o World,
    options: &'o Options,
) -> Option<ListenersSource<'o>> {
    let own = options.configuration.as_deref();
    if let Some(own) = own.filter(|it| it.spec.ingress.is_some()) {
        return Some(ListenersSource {
            configuration: own,
            class: None,
            is_own: true,
        });
    }
    let of_class = classes_by_age(world, options).find_map(|class| {
        let reference = class.spec.parameters_ref.as_ref();
        let configuration = parameters::named_by(reference?, world)?;
        configuration.spec.ingress.as_ref()?;
        Some(ListenersSource {
            configuration,
            class: Some(&class.metadata.name),
            is_own: false,
        })
    });
    of_class.or_else(|| {
        Some(ListenersSource {
            configuration: of_manifests(world, options)?,
            class: None,
            is_own: false,
        })
    })
}

/// No controller configures a host, so a manifest with listeners applies even if no GatewayClass
/// refers to it.
fn of_manifests<'o>(world: &'o World, options: &Options) -> Option<&'o SesameConfiguration> {
    if options.resolved_for != ResolvedFor::Host || options.configuration.is_some() {
        return None;
    }
    let mut all = world.configurations.iter().map(AsRef::as_ref);
    all.find(|it| {
        let ingress = it.spec.ingress.as_ref();
        ingress.is_some_and(|it| it.listeners.is_some())
    })
}

fn classes_by_age<'w>(
    world: &'w World,
    options: &Options,
) -> impl Iterator<Item = &'w GatewayClass> {
    let classes = world.gateway_classes.iter().map(AsRef::as_ref);
    let ours = classes.filter(|class| *class.spec.controller_name == *options.controller_name);
    let mut ours: Vec<&GatewayClass> = ours.collect();
    ours.sort_by(|a, b| a.metadata.by_age(&b.metadata));
    ours.into_iter()
}

/// Returns errors with field paths relative to `spec.ingress`.
pub(super) fn faults(settings: &IngressSettings) -> Vec<String> {
    let IngressSettings {
        watch,
        http,
        https,
        gateway_ref,
        listeners,
        classes,
        root_namespaces,
        duplicates,
        invalid,
        missing_backend,
        disable_permit_insecure: _,
        fallback_certificate,
        rate_limit_service,
        tls,
        backend_tls,
    } = settings;
    let mut faults = serving_faults(watch.as_ref(), *http, *https);
    faults.extend(fault_of("gatewayRef", gateway_ref.as_ref().map(named)));
    if let Some(listeners) = listeners {
        faults.extend(listeners::faults(listeners, settings));
    }
    let secret = fallback_certificate.as_ref();
    let secret = secret.map(|it| (it.namespace.as_str(), it.name.as_str()));
    faults.extend(fault_of("fallbackCertificate", secret));
    faults.extend(rate_limit_service.iter().flat_map(limit_service_faults));
    faults.extend(class_faults(classes.as_deref().unwrap_or_default()));
    let namespaces = root_namespaces.as_deref().unwrap_or_default();
    let number = limits::entries("rootNamespaces", namespaces.len(), 0..=MAX_NAMESPACES);
    faults.extend(number.err());
    faults.extend(tls.iter().flat_map(tls_faults));
    faults.extend(backend_tls.iter().flat_map(backend_tls_faults));
    faults.extend(word_fault("duplicates", duplicates.as_ref()));
    faults.extend(word_fault("invalid", invalid.as_ref()));
    faults.extend(word_fault("missingBackend", missing_backend.as_ref()));
    faults
}

fn limit_service_faults(service: &IngressRateLimitService) -> Vec<String> {
    let IngressRateLimitService {
        extension_service: ExtensionServiceRef { namespace, name },
        domain,
        fail_open: _,
        headers,
        resource_exhausted: _,
    } = service;
    let field = "rateLimitService.extensionService";
    let mut faults: Vec<String> = fault_of(field, Some((namespace, name)))
        .into_iter()
        .collect();
    let most = RateLimit::MAX_KEY_NAME;
    let is_domain = |it: &&String| (1..=most).contains(&it.len()) && !it.contains('%');
    if let Some(domain) = domain.as_ref().filter(|it| !is_domain(it)) {
        faults.push(format!(
            "rateLimitService.domain {domain:?}: expected 1 to {most} bytes without %"
        ));
    }
    faults.extend(word_fault("rateLimitService.headers", headers.as_ref()));
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
            "https: {tls}: expected a port that http does not use"
        ));
    }
    faults
}

fn tls_faults(settings: &IngressTlsSettings) -> Vec<String> {
    let IngressTlsSettings {
        min_version,
        max_version,
        cipher_suites,
        key_exchange_groups,
    } = settings;
    let mut faults = version_faults("tls", min_version.as_ref(), max_version.as_ref(), "client");
    faults.extend(list_faults(
        "tls",
        cipher_suites.as_deref(),
        key_exchange_groups.as_deref(),
    ));
    faults
}

fn backend_tls_faults(settings: &IngressBackendTls) -> Vec<String> {
    let IngressBackendTls {
        min_version,
        max_version,
        cipher_suites,
        key_exchange_groups,
        allow_unverified: _,
    } = settings;
    let (min, max) = (min_version.as_ref(), max_version.as_ref());
    let mut faults = version_faults("backendTls", min, max, "Service");
    faults.extend(list_faults(
        "backendTls",
        cipher_suites.as_deref(),
        key_exchange_groups.as_deref(),
    ));
    faults
}

fn version_faults(
    at: &str,
    min: Option<&TlsVersion>,
    max: Option<&TlsVersion>,
    peer: &str,
) -> Vec<String> {
    let mut faults = Vec::new();
    for (field, version) in [("minVersion", min), ("maxVersion", max)] {
        if let Some(TlsVersion::Other(text)) = version {
            faults.push(format!("{at}.{field} {text:?} is not one of 1.2, 1.3"));
        }
    }
    if max.is_some() && min > max {
        let why = format!("{at}.minVersion is newer than maxVersion: no {peer} could connect");
        faults.push(why);
    }
    faults
}

fn list_faults(at: &str, suites: Option<&[String]>, groups: Option<&[String]>) -> Vec<String> {
    let mut faults = Vec::new();
    for (field, names, known) in [
        ("cipherSuites", suites, &CIPHER_SUITES[..]),
        ("keyExchangeGroups", groups, &KEY_EXCHANGE_GROUPS[..]),
    ] {
        let Some(names) = names else { continue };
        let field = format!("{at}.{field}");
        faults.extend(limits::entries(&field, names.len(), 1..=known.len()).err());
        let mut seen = BTreeSet::new();
        for name in names.iter().take(known.len()) {
            if !known.contains(&name.as_str()) || !seen.insert(name) {
                let known = known.join(", ");
                faults.push(format!("{field} {name:?}: expected each once, of {known}"));
            }
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
                key_exchange_groups: names(&["P-384", "X25519"]),
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
        let of_backends = IngressBackendTls {
            min_version: Some(TlsVersion::from("1.3")),
            max_version: Some(TlsVersion::from("1.2")),
            cipher_suites: names(&["AES128-SHA"]),
            key_exchange_groups: names(&["P-256", "prime256v1"]),
            allow_unverified: Some(true),
        };
        let found = backend_tls_faults(&of_backends).join("; ");
        for expected in [
            "backendTls.minVersion",
            "no Service",
            "backendTls.cipherSuites",
            "backendTls.keyExchangeGroups \"prime256v1\"",
        ] {
            assert!(found.contains(expected), "{expected}: {found}");
        }
    }
}
