//! Settings for Ingresses and HTTPProxies.

use std::collections::BTreeSet;

use super::parameters::{self, Scope};
use crate::api::{
    DuplicateHosts, GatewayClass, GatewayRef, IngressSettings, InvalidProxies, MissingBackend,
    ProxyClass,
};
use crate::resolve::context::Options;
use crate::resolve::syntax::{limits, names};
use crate::status::Verdict;
use crate::world::World;

/// As in the schema.
const MAX_CLASSES: usize = 64;
/// As in the schema.
const MAX_NAMESPACES: usize = 256;

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
        gateway_ref,
        classes,
        root_namespaces,
        duplicates,
        invalid,
        missing_backend,
        disable_permit_insecure: _,
    } = settings;
    let mut faults = Vec::new();
    let fault_of = |field: &str, reference: Option<&GatewayRef>| {
        let checked = reference.map(|it| names::check_object(&it.namespace, &it.name));
        let why = checked.and_then(Result::err)?;
        Some(format!("{field}: {why}"))
    };
    faults.extend(fault_of("gatewayRef", gateway_ref.as_ref()));
    let classes = classes.as_deref().unwrap_or_default();
    faults.extend(limits::entries("classes", classes.len(), 0..=MAX_CLASSES).err());
    let mut seen = BTreeSet::new();
    for (i, class) in classes.iter().enumerate().take(MAX_CLASSES) {
        let ProxyClass {
            name,
            gateway_ref,
            default: _,
        } = class;
        let field = format!("classes[{i}].gatewayRef");
        faults.extend(fault_of(&field, gateway_ref.as_ref()));
        if name.is_empty() || !seen.insert(name) {
            faults.push(format!(
                "classes[{i}].name {name:?}: expected a unique name that is not empty"
            ));
        }
    }
    if classes.iter().filter(|it| it.default == Some(true)).count() > 1 {
        faults.push("classes: several entries are the default; expected at most one".to_owned());
    }
    let namespaces = root_namespaces.as_deref().unwrap_or_default();
    let number = limits::entries("rootNamespaces", namespaces.len(), 0..=MAX_NAMESPACES);
    faults.extend(number.err());
    for (field, value, words) in [
        (
            "duplicates",
            duplicates.as_ref().map(DuplicateHosts::as_str),
            DuplicateHosts::WORDS,
        ),
        (
            "invalid",
            invalid.as_ref().map(InvalidProxies::as_str),
            InvalidProxies::WORDS,
        ),
        (
            "missingBackend",
            missing_backend.as_ref().map(MissingBackend::as_str),
            MissingBackend::WORDS,
        ),
    ] {
        if let Some(value) = value.filter(|value| !words.contains(value)) {
            let words = words.join(", ");
            faults.push(format!("{field} {value:?} is not one of {words}"));
        }
    }
    faults
}
