//! Looks up the parameters for GatewayClasses and Gateways.

use super::{check, named};
use crate::context::Options;
use sesame_kinds::api::{ObjectRef, SESAME_GROUP, SesameConfiguration};
use sesame_kinds::status::{Reason, Verdict};
use sesame_kinds::world::{Kind, LastParameter, LastParameters, World};

/// Namespace of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope<'w> {
    /// The reference names the namespace, because a GatewayClass has none.
    Named,
    /// Namespace of the Gateway.
    Of(&'w str),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Parameters<'w> {
    Absent,
    Valid(&'w SesameConfiguration),
    /// The reference is invalid, or the configuration is missing or invalid.
    Refused,
}

impl<'w> Parameters<'w> {
    pub(crate) fn valid(self) -> Option<&'w SesameConfiguration> {
        match self {
            Self::Valid(found) => Some(found),
            Self::Absent | Self::Refused => None,
        }
    }
}

pub(crate) fn find<'w>(
    field: &str,
    reference: Option<&'w ObjectRef>,
    scope: Scope<'w>,
    world: &'w World,
    verdict: &mut Verdict,
) -> Parameters<'w> {
    let Some(reference) = reference else {
        return Parameters::Absent;
    };
    match look_up(reference, scope, world) {
        Ok(found) => {
            let faults = check::faults_of_parameters(found, scope);
            if faults.is_empty() {
                return Parameters::Valid(found);
            }
            let message = format!(
                "{field}: {} is not valid: {}",
                named(found),
                faults.join("; ")
            );
            verdict.refuse(Reason::InvalidParameters, message);
        }
        Err(why) => verdict.refuse(Reason::InvalidParameters, format!("{field}{why}")),
    }
    Parameters::Refused
}

/// Returns the parameters of this controller's classes, for the next resolution. Unusable ones do not
/// replace earlier ones.
pub(crate) fn last(world: &World, options: &Options) -> LastParameters {
    let classes = world.gateway_classes.iter();
    let ours = classes.filter(|class| class.spec.controller_name == options.controller_name);
    let known = ours.map(|class| {
        let name = &class.metadata.name;
        let reference = class.spec.parameters_ref.as_ref();
        let mut discarded = Verdict::default();
        let last = match find("", reference, Scope::Named, world, &mut discarded) {
            Parameters::Absent => LastParameter::Absent,
            Parameters::Valid(found) => {
                let key = &found.metadata;
                let found = world.configurations.get(&key.namespace, &key.name);
                found.map_or(LastParameter::Absent, |it| LastParameter::Valid(it.clone()))
            }
            Parameters::Refused => remembered(world, name).clone(),
        };
        (name.clone(), last)
    });
    known.collect()
}

/// Returns the last parameters of a class whose present ones are unusable.
pub(crate) fn remembered<'w>(world: &'w World, class: &str) -> &'w LastParameter {
    match world.last_parameters.get(class) {
        Some(last) => last,
        None if world.last_parameters.is_empty() => &LastParameter::Unknown,
        None => &LastParameter::Absent,
    }
}

/// Returns the configuration of a GatewayClass, even if it is invalid.
pub(crate) fn named_by<'w>(
    reference: &'w ObjectRef,
    world: &'w World,
) -> Option<&'w SesameConfiguration> {
    look_up(reference, Scope::Named, world).ok()
}

fn look_up<'w>(
    reference: &'w ObjectRef,
    scope: Scope<'w>,
    world: &'w World,
) -> Result<&'w SesameConfiguration, String> {
    let ObjectRef {
        group,
        kind,
        name,
        namespace,
    } = reference;
    let (group, kind) = (
        group.as_deref().unwrap_or_default(),
        kind.as_deref().unwrap_or_default(),
    );
    let known = Kind::SesameConfiguration.as_str();
    if (group, kind) != (SESAME_GROUP, known) {
        return Err(format!(
            " names {kind} {name:?} of group {group:?}; expected {known} of group {SESAME_GROUP:?}"
        ));
    }
    let namespace = match (scope, namespace.as_deref()) {
        (Scope::Of(own), None) => own,
        (Scope::Of(own), Some(named)) if named == own => own,
        (Scope::Of(own), Some(_)) => {
            return Err(format!(
                ".namespace: the parameters of a Gateway must be in its own namespace, {own:?}; \
                 remove the field"
            ));
        }
        (Scope::Named, Some(named)) if !named.is_empty() => named,
        (Scope::Named, _) => {
            return Err(format!(
                ".namespace is required, because {known} is a namespaced kind"
            ));
        }
    };
    let found = world.configurations.get(namespace, name);
    found.map(AsRef::as_ref).ok_or_else(|| {
        format!(
            ": {known} {namespace}/{name} does not exist or cannot be read; create it, or \
            remove the reference"
        )
    })
}
