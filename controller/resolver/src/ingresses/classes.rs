//! The IngressClasses that belong to Sesame, and the Gateway for each class.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::schema::Protocol;

use super::listeners::ListenersOfGateway;
use super::ports::IngressPorts;
use crate::context::{Options, Problems};
use crate::settings;
use crate::settings::ingress::FoundSettings;
use sesame_kinds::api::{
    ANNOTATION_DIALECT, CONTOUR_CLASS, DEFAULT_INGRESS_CLASS, GATEWAY_GROUP, GatewayClass,
    GatewayRef, HttpProxy, INGRESS_CLASS, Ingress, IngressClass, IngressClassParameters,
    IngressClassSpec, IngressSettings, NamespacedName, ProxyClass,
};
use sesame_kinds::world::{Kind, World};

/// Controller name by which an IngressClass selects Sesame.
pub const INGRESS_CONTROLLER: &str = "projectsesame.io/ingress-controller";

const NGINX: &str = "Nginx";

/// Namespace and name, or why the class has no Gateway.
pub(crate) type ClassGateway<'w> = Result<(&'w str, &'w str), String>;

#[derive(Default)]
pub(crate) struct IngressClasses<'w> {
    settings: Option<&'w IngressSettings>,
    /// GatewayClass whose parameters are unusable, so that the settings are unknown.
    unknown_to: Option<&'w GatewayClass>,
    object_classes: NamedClasses<'w>,
    /// For each class, the other controller whose annotations also apply.
    annotations_of: BTreeMap<&'w str, &'w str>,
    /// Classes that apply only to HTTPProxies.
    settings_classes: NamedClasses<'w>,
}

#[derive(Default)]
struct NamedClasses<'w> {
    by_name: BTreeMap<&'w str, ClassGateway<'w>>,
    /// Class of objects that do not set one, if the default class belongs to Sesame.
    default: Option<&'w str>,
}

impl<'w> NamedClasses<'w> {
    fn find(&self, name: Option<&'w str>) -> Option<(&'w str, &ClassGateway<'w>)> {
        let name = name.filter(|name| !name.is_empty()).or(self.default)?;
        Some((name, self.by_name.get(name)?))
    }
}

impl<'w> IngressClasses<'w> {
    /// Returns no classes if `spec.ingress.watch` disables them, or if it is unknown.
    pub(crate) fn check(world: &'w World, options: &'w Options) -> Self {
        let settings = match settings::ingress::settings(world, options) {
            FoundSettings::Known(settings) => settings,
            FoundSettings::Unknown(class) => {
                return Self {
                    unknown_to: Some(class),
                    ..Self::default()
                };
            }
        };
        if !settings::ingress::serves(settings, options) {
            return Self::default();
        }
        // Do not default to the only Gateway: creating a second one would break the default.
        let default_gateway = settings.and_then(|it| it.gateway_ref.as_ref()).map(named);
        let ours = world.ingress_classes.iter().filter(|class| is_ours(class));
        let by_name = ours.map(|class| {
            let gateway = gateway_of(&class.spec, default_gateway);
            (class.metadata.name.as_str(), gateway)
        });
        // Like the API server, use the newest default class.
        let defaults = world
            .ingress_classes
            .iter()
            .filter(|class| class.metadata.annotations.get(DEFAULT_INGRESS_CLASS) == Some("true"));
        let default = defaults.min_by_key(|class| {
            let metadata = &class.metadata;
            (Reverse(metadata.creation_timestamp), metadata.name.as_str())
        });
        let ours = world.ingress_classes.iter().filter(|class| is_ours(class));
        let annotations_of = ours.filter_map(|class| {
            let metadata = &class.metadata;
            Some((
                metadata.name.as_str(),
                metadata.annotations.get(ANNOTATION_DIALECT)?,
            ))
        });
        Self {
            settings,
            unknown_to: None,
            annotations_of: annotations_of.collect(),
            object_classes: NamedClasses {
                by_name: by_name.collect(),
                default: default
                    .filter(|class| is_ours(class))
                    .map(|class| class.metadata.name.as_str()),
            },
            settings_classes: of_settings(settings, default_gateway),
        }
    }

    pub(crate) fn reads_nginx(&self, class: &str) -> bool {
        self.annotations_of.get(class) == Some(&NGINX)
    }

    pub(crate) fn ports(&self) -> IngressPorts {
        IngressPorts::of(self.settings)
    }

    pub(crate) fn settings(&self) -> Option<&'w IngressSettings> {
        self.settings
    }

    pub(crate) fn unknown_to(&self) -> Option<&'w GatewayClass> {
        self.unknown_to
    }

    pub(crate) fn find(&self, ingress: &'w Ingress) -> Option<(&'w str, &ClassGateway<'w>)> {
        let annotation = ingress.metadata.annotations.get(INGRESS_CLASS);
        let class = annotation.or(ingress.spec.ingress_class_name.as_deref());
        self.object_classes.find(class)
    }

    pub(crate) fn find_for_proxy(
        &self,
        proxy: &'w HttpProxy,
    ) -> Option<(&'w str, &ClassGateway<'w>)> {
        let class = class_name(proxy);
        let found = self.object_classes.find(class);
        found.or_else(|| self.settings_classes.find(class))
    }

    pub(crate) fn report_ports(&self, all: &[ListenersOfGateway<'_, '_>], problems: &mut Problems) {
        let Some(port) = self.ports().http else {
            return;
        };
        let classes = [&self.object_classes, &self.settings_classes].into_iter();
        let named = classes.flat_map(|it| it.by_name.values().flatten());
        let named: BTreeSet<_> = named.collect();
        for gateway in all.iter().map(ListenersOfGateway::gateway) {
            let owner = &gateway.owner;
            let is_named = named.contains(&(owner.namespace, owner.name));
            let mut listeners = gateway.listeners.iter();
            let is_served =
                listeners.any(|it| it.protocol == Some(Protocol::Http) && it.port == Some(port));
            if is_named && !is_served {
                let why = format!(
                    "no HTTP listener has port {port} (spec.ingress.http), so Ingresses and \
                     HTTPProxies are not served over plain HTTP"
                );
                problems.add(owner.key(), why);
            }
        }
    }

    pub(crate) fn report(&self, problems: &mut Problems) {
        for (name, of) in &self.annotations_of {
            if *of != NGINX {
                let key = Kind::IngressClass.named(NamespacedName::new("", name));
                let why = format!(
                    "metadata.annotations {ANNOTATION_DIALECT} {of:?} is unknown; expected {NGINX}, or \
                     no such annotation"
                );
                problems.add(key, why);
            }
        }
        for (name, gateway) in &self.object_classes.by_name {
            if let Err(why) = gateway {
                let key = Kind::IngressClass.named(NamespacedName::new("", name));
                problems.add(key, format!("{why}; no Ingress of the class is served"));
            }
        }
    }
}

pub(crate) fn class_name(proxy: &HttpProxy) -> Option<&str> {
    let HttpProxy { metadata, spec } = proxy;
    let annotation = metadata.annotations.get(CONTOUR_CLASS);
    let annotation = annotation.or_else(|| metadata.annotations.get(INGRESS_CLASS));
    annotation.or(spec.ingress_class_name.as_deref())
}

pub(super) fn is_ours(class: &IngressClass) -> bool {
    *class.spec.controller == *INGRESS_CONTROLLER
}

fn of_settings<'w>(
    settings: Option<&'w IngressSettings>,
    default_gateway: Option<(&'w str, &'w str)>,
) -> NamedClasses<'w> {
    let mut classes = NamedClasses::default();
    let listed = settings.and_then(|it| it.classes.as_deref());
    for class in listed.unwrap_or_default() {
        let ProxyClass {
            name,
            gateway_ref,
            default,
        } = class;
        let gateway = gateway_ref.as_ref().map(named).or(default_gateway);
        let gateway = gateway.ok_or_else(|| {
            format!(
                "entry {name:?} of spec.ingress.classes has no gatewayRef, and neither has \
                 spec.ingress"
            )
        });
        classes.by_name.insert(name, gateway);
        if *default == Some(true) {
            classes.default = Some(name);
        }
    }
    classes
}

fn named(reference: &GatewayRef) -> (&str, &str) {
    (&reference.namespace, &reference.name)
}

pub(super) fn gateway_of<'w>(
    spec: &'w IngressClassSpec,
    default_gateway: Option<(&'w str, &'w str)>,
) -> ClassGateway<'w> {
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
        return default_gateway.ok_or_else(|| {
            format!(
                "spec.parameters is missing; name a Gateway there: apiGroup {GATEWAY_GROUP}, kind \
                 Gateway, scope Namespace, namespace and name; or in spec.ingress.gatewayRef of the \
                 configuration"
            )
        });
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
