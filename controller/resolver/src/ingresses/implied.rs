//! The Gateway that `spec.ingress.listeners` implies. It serves Ingresses and HTTPProxies without a
//! Gateway object, so the Gateway API's CRDs are not needed.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;

use crate::Resolution;
use crate::context::{Options, Problem};
use crate::gateways::CheckedGateway;
use crate::gateways::merged::merged_name;
use crate::settings::GatewaySettings;
use crate::settings::ingress::{ListenersSource, listeners_source, serves};
use sesame_kinds::api::{
    AllowedNamespaces, AllowedRoutes, FromNamespaces, Gateway, GatewayClass, GatewayClassSpec,
    GatewayRef, GatewaySpec, IngressListener, Listener, ListenerTls, Metadata, NamespacedName,
    ObjectRef, Protocol, SESAME_GROUP, SesameConfiguration,
};
use sesame_kinds::status::{Condition, ConditionType};
use sesame_kinds::world::{Kind, ObjectKey, World};

/// Class of the implied Gateway, unless a class's parameters imply it. A GatewayClass object of
/// this name takes precedence.
const CLASS: &str = "sesame";

/// A Gateway that only the configuration declares.
#[derive(Clone, Debug, PartialEq)]
pub struct ImpliedGateway {
    /// `None` if the Gateway's class exists.
    class: Option<GatewayClass>,
    gateway: Gateway,
    declared_by: ObjectKey,
}

impl ImpliedGateway {
    /// Returns `None` if no listeners are configured, or if a problem prevents their use.
    pub fn find(world: &World, options: &Options) -> Option<Self> {
        find(world, options)?.ok()
    }

    /// Returns the Gateway's name.
    pub fn name(&self) -> NamespacedName {
        self.gateway.metadata.key()
    }

    /// Returns the configuration that declares the Gateway.
    pub fn declared_by(&self) -> &ObjectKey {
        &self.declared_by
    }

    /// Returns the name of the Gateway's class.
    pub fn class(&self) -> &str {
        &self.gateway.spec.gateway_class_name
    }

    /// Returns true if the class exists only in the configuration, too.
    pub fn implies_class(&self) -> bool {
        self.class.is_some()
    }

    fn add_to(self, world: &mut World) {
        let Self {
            class,
            gateway,
            declared_by: _,
        } = self;
        if let Some(class) = class {
            // The class does not exist for Gateway objects.
            let name = &class.metadata.name;
            world
                .gateways
                .retain(|it| it.spec.gateway_class_name != *name);
            world.gateway_classes.insert(Arc::new(class));
        }
        world.gateways.insert(Arc::new(gateway));
    }
}

/// Adds the implied Gateway and its class, if any.
pub fn with_implied_gateway<'w>(world: &'w World, options: &Options) -> Cow<'w, World> {
    let Some(implied) = ImpliedGateway::find(world, options) else {
        return Cow::Borrowed(world);
    };
    let mut world = world.clone();
    implied.add_to(&mut world);
    Cow::Owned(world)
}

/// Why configured listeners are not used.
struct Unused {
    problem: Problem,
    /// Gateway object that takes precedence.
    gateway: Option<NamespacedName>,
}

impl Unused {
    fn new(declared_by: ObjectKey, gateway: Option<NamespacedName>, why: &str) -> Self {
        let why = format!("spec.ingress.listeners has no effect, because {why}");
        Self {
            problem: Problem::new(declared_by, why),
            gateway,
        }
    }
}

fn find(world: &World, options: &Options) -> Option<Result<ImpliedGateway, Unused>> {
    if !options.implied_gateway {
        return None;
    }
    let ListenersSource {
        configuration,
        class,
        is_own,
    } = listeners_source(world, options)?;
    let settings = configuration.spec.ingress.as_ref()?;
    let listeners = settings.listeners.as_deref()?;
    let GatewayRef { namespace, name } = settings.gateway_ref.as_ref()?;
    if !serves(Some(settings), options) {
        return None;
    }
    let declared_by = Kind::SesameConfiguration.named(configuration.metadata.key());
    let unused = |gateway, why: &str| Some(Err(Unused::new(declared_by.clone(), gateway, why)));
    if world.gateways.get(namespace, name).is_some() {
        let gateway = NamespacedName::new(namespace, name);
        let why = format!("Gateway {gateway} exists");
        return unused(Some(gateway), &why);
    }
    let known = world.gateway_classes.get("", class.unwrap_or(CLASS));
    if known.is_some_and(|it| it.spec.controller_name != options.controller_name) {
        let why = format!("GatewayClass {CLASS:?} belongs to another controller");
        return unused(None, &why);
    }
    let class = known
        .is_none()
        .then(|| implied_class(configuration, is_own, options));
    Some(Ok(ImpliedGateway {
        gateway: Gateway {
            metadata: metadata(namespace, name, configuration),
            spec: GatewaySpec {
                gateway_class_name: known.map_or(CLASS, |it| &it.metadata.name).to_owned(),
                listeners: listeners.iter().map(listener).collect(),
                ..GatewaySpec::default()
            },
        },
        class,
        declared_by: declared_by.clone(),
    }))
}

fn metadata(namespace: &str, name: &str, configuration: &SesameConfiguration) -> Metadata {
    Metadata {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        generation: configuration.metadata.generation,
        // Existing objects take precedence.
        creation_timestamp: Some(Timestamp::MAX),
        ..Metadata::default()
    }
}

/// The controller's own configuration applies to all classes, so it must not be the parameters, too.
fn implied_class(
    configuration: &SesameConfiguration,
    is_own: bool,
    options: &Options,
) -> GatewayClass {
    let Metadata {
        namespace, name, ..
    } = &configuration.metadata;
    GatewayClass {
        metadata: metadata("", CLASS, configuration),
        spec: GatewayClassSpec {
            controller_name: options.controller_name.clone(),
            parameters_ref: (!is_own).then(|| ObjectRef {
                group: Some(SESAME_GROUP.to_owned()),
                kind: Some(Kind::SesameConfiguration.as_str().to_owned()),
                name: name.clone(),
                namespace: Some(namespace.clone()),
            }),
            description: None,
        },
    }
}

fn listener(configured: &IngressListener) -> Listener {
    let IngressListener {
        name: _,
        port,
        protocol: _,
        hostname,
        secret_name,
    } = configured;
    let certificate = |name: &String| ObjectRef {
        name: name.clone(),
        ..ObjectRef::default()
    };
    let tls = || ListenerTls {
        certificate_refs: secret_name.iter().map(certificate).collect(),
        ..ListenerTls::default()
    };
    // As for other Gateways, the classes open a listener without a hostname to Ingresses and
    // HTTPProxies of all namespaces. Routes of other namespaces must not attach, because HTTPRoutes
    // take precedence.
    let has_hostname = hostname.as_ref().is_some_and(|it| !it.is_empty());
    Listener {
        name: configured.listener_name(),
        hostname: hostname.clone(),
        port: *port,
        protocol: if configured.is_https() {
            Protocol::Https
        } else {
            Protocol::Http
        },
        tls: configured.is_https().then(tls),
        allowed_routes: has_hostname.then_some(AllowedRoutes {
            namespaces: Some(AllowedNamespaces {
                from: Some(FromNamespaces::All),
                selector: None,
            }),
            kinds: Vec::new(),
        }),
        filters: None,
    }
}

impl Resolution {
    /// Reports unused listeners as a problem, and in the status of the Gateway that takes precedence.
    /// `served` is the only Gateway that is served, if there is such a limit.
    pub fn report_unused_listeners(
        &mut self,
        world: &World,
        options: &Options,
        served: Option<&NamespacedName>,
    ) {
        let unused = match find(world, options) {
            None => return,
            Some(Err(unused)) => unused,
            Some(Ok(implied)) => match served.filter(|served| **served != implied.name()) {
                None => return,
                Some(served) => {
                    let why = format!("only Gateway {served} is served");
                    Unused::new(implied.declared_by, Some(served.clone()), &why)
                }
            },
        };
        let Unused { problem, gateway } = unused;
        if let Some(status) = gateway.and_then(|name| self.statuses.gateways.get_mut(&name)) {
            let why = format!("{}: {}", problem.object, problem.message);
            append(&mut status.conditions, &why);
        }
        self.problems.push(problem);
        self.problems.sort_unstable();
    }

    /// Reports that the settings for Ingresses and HTTPProxies are unknown. `affected` Gateways keep
    /// their publications.
    pub(crate) fn report_unknown(
        &mut self,
        class: &GatewayClass,
        affected: Vec<&CheckedGateway<'_>>,
    ) {
        let names = affected.iter().map(|gateway| gateway.published_as());
        self.unless_published = names.collect();
        for gateway in affected {
            let why = format!(
                "it keeps its last state, if there is one, because the parameters of GatewayClass \
                 {:?} are unusable and may set spec.ingress",
                class.metadata.name
            );
            if let Some(status) = self.statuses.gateways.get_mut(&gateway.name()) {
                append(&mut status.conditions, &why);
            }
        }
        let key = class.metadata.key();
        let why = "these parameters may set spec.ingress, so Gateways that may have Ingresses or \
                   HTTPProxies keep their last state, and their statuses stay unchanged; new \
                   Gateways do not serve these objects";
        if let Some(status) = self.statuses.gateway_classes.get_mut(&key) {
            append(&mut status.conditions, why);
        }
        let problem = Problem::new(Kind::GatewayClass.named(key), why.to_owned());
        self.problems.push(problem);
        self.problems.sort_unstable();
    }

    /// Marks the settings of a Gateway that only the configuration declares, and removes the status
    /// of its class if no GatewayClass exists. Needed only if the resolved world contained both.
    pub fn record_implied(&mut self, implied: &ImpliedGateway, options: &Options) {
        let class = NamespacedName::new("", implied.class());
        if implied.implies_class() {
            self.statuses.gateway_classes.remove(&class);
        }
        let merged = merged_name(&class.name, options);
        let is_merged = |it: &&GatewaySettings| it.is_merged();
        let published = match self.settings.get(&implied.name()).filter(is_merged) {
            Some(_) if implied.implies_class() => merged,
            Some(_) => return,
            None => implied.name(),
        };
        if let Some(settings) = self.settings.get_mut(&published) {
            settings.implied_class = Some(class.name);
        }
    }
}

fn append(conditions: &mut [Condition], why: &str) {
    let mut accepted = conditions.iter_mut();
    if let Some(accepted) = accepted.find(|it| it.type_ == ConditionType::Accepted) {
        accepted.message.push_str("; ");
        accepted.message.push_str(why);
    }
}
