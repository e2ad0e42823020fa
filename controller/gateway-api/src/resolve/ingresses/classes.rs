//! IngressClasses of Sesame, and the Gateway that each names.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::api::{
    CONTOUR_CLASS, DEFAULT_INGRESS_CLASS, GATEWAY_GROUP, HttpProxy, INGRESS_CLASS, Ingress,
    IngressClass, IngressClassParameters, IngressClassSpec, NamespacedName,
};
use crate::resolve::context::Problems;
use crate::world::{Kind, World};

/// The controller that IngressClasses of Sesame name.
pub const INGRESS_CONTROLLER: &str = "projectsesame.io/ingress-controller";

/// The Gateway of a class by namespace and name, or the reason why the class has none.
pub(crate) type ClassGateway<'w> = Result<(&'w str, &'w str), String>;

/// The IngressClasses of Sesame.
pub(crate) struct IngressClasses<'w> {
    by_name: BTreeMap<&'w str, ClassGateway<'w>>,
    /// Name of the class of Ingresses without a class, if it is one of Sesame.
    default: Option<&'w str>,
}

impl<'w> IngressClasses<'w> {
    /// Checks all classes.
    pub(crate) fn check(world: &'w World) -> Self {
        let ours = world.ingress_classes.iter().filter(|class| is_ours(class));
        let by_name = ours.map(|class| (class.metadata.name.as_str(), gateway_of(&class.spec)));
        // The API server fills in the newest default class when an Ingress is created.
        let defaults = world
            .ingress_classes
            .iter()
            .filter(|class| class.metadata.annotations.get(DEFAULT_INGRESS_CLASS) == Some("true"));
        let default = defaults.min_by_key(|class| {
            let metadata = &class.metadata;
            (Reverse(metadata.creation_timestamp), metadata.name.as_str())
        });
        Self {
            by_name: by_name.collect(),
            default: default
                .filter(|class| is_ours(class))
                .map(|class| class.metadata.name.as_str()),
        }
    }

    /// Returns the class of an Ingress with its Gateway, or `None` if it is not one of Sesame.
    pub(crate) fn of(&self, ingress: &'w Ingress) -> Option<(&'w str, &ClassGateway<'w>)> {
        let annotation = ingress.metadata.annotations.get(INGRESS_CLASS);
        self.find(annotation.or(ingress.spec.ingress_class_name.as_deref()))
    }

    /// Returns the class of an HTTPProxy with its Gateway, or `None` if it is not one of Sesame.
    pub(crate) fn of_proxy(&self, proxy: &'w HttpProxy) -> Option<(&'w str, &ClassGateway<'w>)> {
        let HttpProxy { metadata, spec } = proxy;
        let annotation = metadata.annotations.get(CONTOUR_CLASS);
        let annotation = annotation.or_else(|| metadata.annotations.get(INGRESS_CLASS));
        self.find(annotation.or(spec.ingress_class_name.as_deref()))
    }

    fn find(&self, name: Option<&'w str>) -> Option<(&'w str, &ClassGateway<'w>)> {
        let name = name.filter(|name| !name.is_empty()).or(self.default)?;
        Some((name, self.by_name.get(name)?))
    }

    /// Returns the namespace and name of the Gateway for an Ingress.
    pub(crate) fn gateway(&self, ingress: &'w Ingress) -> Option<(&'w str, &'w str)> {
        let (_, gateway) = self.of(ingress)?;
        gateway.as_ref().ok().copied()
    }

    /// Adds a problem for each class without a Gateway.
    pub(crate) fn tell(&self, problems: &mut Problems) {
        for (name, gateway) in &self.by_name {
            if let Err(why) = gateway {
                let key = Kind::IngressClass.named(NamespacedName::new("", name));
                problems.add(key, format!("{why}; no Ingress of the class is served"));
            }
        }
    }
}

fn is_ours(class: &IngressClass) -> bool {
    *class.spec.controller == *INGRESS_CONTROLLER
}

/// Returns the Gateway that a class names.
fn gateway_of(spec: &IngressClassSpec) -> ClassGateway<'_> {
    let IngressClassSpec {
        controller: _,
        parameters,
    } = spec;
    let Some(IngressClassParameters {
        api_group,
        kind,
        name,
        scope,
        namespace,
    }) = parameters
    else {
        return Err(format!(
            "spec.parameters is missing; name a Gateway there: apiGroup {GATEWAY_GROUP}, kind \
             Gateway, scope Namespace, namespace and name"
        ));
    };
    let group = api_group.as_deref().unwrap_or_default();
    if group != GATEWAY_GROUP || **kind != *Kind::Gateway.as_str() {
        return Err(format!(
            "spec.parameters names kind {kind:?} of group {group:?}; expected kind Gateway of \
             group {GATEWAY_GROUP}"
        ));
    }
    let namespace = namespace.as_deref().unwrap_or_default();
    if scope.as_deref() != Some("Namespace") || namespace.is_empty() || name.is_empty() {
        return Err(
            "spec.parameters must have scope Namespace, and the namespace and name of a Gateway"
                .to_owned(),
        );
    }
    Ok((namespace, name))
}
