//! Shows how adopting an existing fleet would change it, and records the user's consent. Runs with
//! the caller's permissions, and writes only the consent annotation.

use std::fmt;

use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use thiserror::Error;

use crate::provision::{AdoptionAction, AdoptionPreview, ObjectAction};
use crate::watch::{Received, api_resource};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::Kind;
use sesame_published::names::{ADOPT_ANNOTATION, adoption_name};

const GATEWAY_VERSION: &str = "gateway.networking.k8s.io/v1";
const FLEET_CONDITION: &str = "projectsesame.io/Fleet";
const MANAGER: &str = "sesame-controller-fleet";

#[derive(Debug, Error)]
pub(crate) enum AdoptError {
    #[error("{what}: {source}")]
    Cluster {
        /// Kind and name of the object.
        what: String,
        /// The error returned by the API server.
        source: Box<kube::Error>,
    },
    #[error(
        "Gateway {0} does not exist; for Gateways that are served together, \
        use CONTROLLER-NAMESPACE/CLASS"
    )]
    NoGateway(NamespacedName),
    #[error(
        "{what}: {why}; `sesame-controller fleet` must have the same version as the controller"
    )]
    Preview {
        /// Name of the ConfigMap.
        what: String,
        /// Why the ConfigMap is invalid.
        why: String,
    },
    #[error("there is nothing to adopt for Gateway {0}")]
    Nothing(NamespacedName),
    #[error(
        "{0:?} differs from the current output of `fleet diff`: the fleet or the controller's \
        plan has changed; run `fleet diff` again"
    )]
    Stale(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FleetOwner {
    Gateway(NamespacedName),
    Class(String),
}

impl fmt::Display for FleetOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway(name) => write!(f, "Gateway {name}"),
            Self::Class(name) => write!(f, "GatewayClass {name}"),
        }
    }
}

impl FleetOwner {
    fn api(&self, client: &Client) -> (Api<Received>, &str) {
        let resource = |kind| api_resource(kind, GATEWAY_VERSION);
        let client = client.clone();
        match self {
            Self::Gateway(NamespacedName { namespace, name }) => {
                let gateways = resource(Kind::Gateway);
                (Api::namespaced_with(client, namespace, &gateways), name)
            }
            Self::Class(name) => (Api::all_with(client, &resource(Kind::GatewayClass)), name),
        }
    }

    async fn read(self, client: &Client) -> Result<Option<(Self, Received)>, AdoptError> {
        let (api, name) = self.api(client);
        let read = api.get_opt(name).await;
        let found = read.map_err(|error| failed(&self.to_string(), error))?;
        Ok(found.map(|found| (self, found)))
    }
}

pub(crate) enum FleetState {
    /// There is nothing to adopt. Contains the reason if the fleet is incomplete.
    Settled(Option<String>),
    There(FleetComparison),
}

pub(crate) struct FleetComparison {
    pub(crate) objects: Vec<ObjectAction>,
    /// `None` if an object has another owner.
    pub(crate) consent: Option<String>,
    /// True if the controller's preview contains the same agreement.
    pub(crate) is_current: bool,
}

impl FleetComparison {
    pub(crate) fn restarts_pods(&self) -> bool {
        let mut actions = self.objects.iter().map(|object| &object.action);
        actions.any(AdoptionAction::restarts_pods)
    }
}

pub(crate) async fn inspect(
    client: &Client,
    namespace: &str,
    gateway: &NamespacedName,
) -> Result<(FleetOwner, FleetState), AdoptError> {
    let mut owner = FleetOwner::Gateway(gateway.clone()).read(client).await?;
    // A fleet that several Gateways share is published under their GatewayClass's name.
    if owner.is_none() && gateway.namespace == namespace {
        let class = FleetOwner::Class(gateway.name.clone());
        owner = class.read(client).await?;
    }
    let (owner, stored) = owner.ok_or_else(|| AdoptError::NoGateway(gateway.clone()))?;
    let name = adoption_name(gateway);
    let what = format!("ConfigMap {namespace}/{name}");
    let resource = api_resource(Kind::ConfigMap, "v1");
    let config_maps: Api<Received> = Api::namespaced_with(client.clone(), namespace, &resource);
    let found = config_maps.get_opt(&name).await;
    let Some(found) = found.map_err(|error| failed(&what, error))? else {
        let incomplete = match &owner {
            FleetOwner::Gateway(_) => incomplete(stored.value()),
            FleetOwner::Class(class) => incomplete_of_class(client, class).await?,
        };
        return Ok((owner, FleetState::Settled(incomplete)));
    };
    let preview = AdoptionPreview::parse(found.value(), gateway);
    let preview = preview.map_err(|why| AdoptError::Preview { what, why })?;
    let mut objects = Vec::new();
    for (resource, name) in preview.reads() {
        let namespace = &name.namespace;
        let api: Api<Received> = Api::namespaced_with(client.clone(), namespace, &resource);
        let read = api.get_opt(&name.name).await;
        objects.push(read.map_err(|error| failed(&format!("{} {name}", resource.kind), error))?);
    }
    let (objects, consent) = preview.compare(&objects);
    let found = FleetState::There(FleetComparison {
        is_current: preview.is_current(consent.as_deref()),
        objects,
        consent,
    });
    Ok((owner, found))
}

/// Fails if the changes shown by [`inspect`] no longer match `consent`.
pub(crate) async fn agree(
    client: &Client,
    namespace: &str,
    gateway: &NamespacedName,
    consent: &str,
) -> Result<FleetOwner, AdoptError> {
    let (owner, found) = inspect(client, namespace, gateway).await?;
    match found {
        FleetState::Settled(_) => return Err(AdoptError::Nothing(gateway.clone())),
        FleetState::There(FleetComparison { consent: now, .. }) => {
            if now.as_deref() != Some(consent) {
                return Err(AdoptError::Stale(consent.to_owned()));
            }
        }
    }
    let patch = json!({"metadata": {"annotations": {ADOPT_ANNOTATION: consent}}});
    let parameters = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(&patch);
    let (api, name) = owner.api(client);
    let patched = api.patch(name, &parameters, &patch).await;
    patched.map_err(|error| failed(&owner.to_string(), error))?;
    Ok(owner)
}

async fn incomplete_of_class(client: &Client, class: &str) -> Result<Option<String>, AdoptError> {
    let resource = api_resource(Kind::Gateway, GATEWAY_VERSION);
    let gateways: Api<Received> = Api::all_with(client.clone(), &resource);
    let listed = gateways.list(&ListParams::default()).await;
    let listed = listed.map_err(|error| failed("Gateways", error))?;
    let is_member = |gateway: &&Received| gateway.value()["spec"]["gatewayClassName"] == class;
    let mut members = listed.items.iter().filter(is_member);
    Ok(members.find_map(|gateway| incomplete(gateway.value())))
}

fn incomplete(gateway: &Value) -> Option<String> {
    let conditions = gateway["status"]["conditions"].as_array()?;
    let is_fleet = |condition: &&Value| condition["type"] == FLEET_CONDITION;
    let condition = conditions.iter().find(is_fleet)?;
    let message = condition["message"].as_str()?;
    (condition["status"] == "False").then(|| message.to_owned())
}

fn failed(what: &str, error: kube::Error) -> AdoptError {
    AdoptError::Cluster {
        what: what.to_owned(),
        source: Box::new(error),
    }
}
