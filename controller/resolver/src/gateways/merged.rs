//! GatewayClasses whose Gateways share the same Envoy instances.
//!
//! The name under which these Gateways are published does not change when Gateways are added or
//! removed. A Gateway that overrides a per-Envoy setting is rejected without affecting other
//! Gateways. If the Gateway was already served, it keeps its previous ports and uses the class's
//! settings.

use std::collections::BTreeSet;

use sesame_proto::schema::Snapshot;

use super::CheckedGateway;
use super::classes::{CheckedClass, Classes};
use crate::context::Options;
use crate::listeners::ListenerOwner;
use crate::settings::GatewaySettings;
use crate::settings::parameters::Parameters;
use sesame_kinds::api::{FLEET_LABEL, Gateway, Infrastructure, NamespacedName};
use sesame_kinds::status::{Reason, Verdict};
use sesame_kinds::world::{ObjectKey, ServedTogether, World};

/// A Gateway that is served together with other Gateways of its class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergedGateway {
    /// Name under which all Gateways of the class are published.
    pub published_as: NamespacedName,
    /// Names of the keys that this Gateway uses.
    pub keys: BTreeSet<String>,
}

/// Returns the name under which the merged Gateways of a class are published.
pub fn merged_name(class: &str, options: &Options) -> NamespacedName {
    NamespacedName::new(&options.namespace, class)
}

pub(super) fn published_as(
    class: &str,
    checked: &CheckedClass<'_>,
    options: &Options,
) -> Option<NamespacedName> {
    let merged = checked.settings.is_merged();
    merged.then(|| merged_name(class, options))
}

pub(crate) fn is_of_class(name: &NamespacedName, classes: &Classes<'_>, options: &Options) -> bool {
    let class = classes.get(&name.name);
    let is_merged = class.is_some_and(|class| class.settings.is_merged());
    is_merged && *name == merged_name(&name.name, options)
}

/// Rejects a Gateway with the name under which a class publishes its merged Gateways.
pub(super) fn check_name(
    name: &NamespacedName,
    classes: &Classes<'_>,
    options: &Options,
    accepted: &mut Verdict,
) {
    if is_of_class(name, classes, options) {
        let why = format!(
            "the Gateways of GatewayClass {:?} are published under the name {name} (spec.fleet.gateways is Merged); choose \
             another name",
            name.name
        );
        accepted.refuse(Reason::Invalid, why);
    }
}

/// Rejects overrides of settings that all Gateways of a class share. `settings` are the effective
/// settings of the Gateway.
pub(super) fn check(
    gateway: &Gateway,
    class: &CheckedClass<'_>,
    settings: &GatewaySettings,
    accepted: &mut Verdict,
) {
    let mut own = settings.differences(&class.settings);
    if let Some(infrastructure) = &gateway.spec.infrastructure {
        let Infrastructure {
            labels,
            annotations,
            parameters_ref: _,
        } = infrastructure;
        for (field, empty) in [
            ("labels", labels.is_empty()),
            ("annotations", annotations.is_empty()),
        ] {
            if !empty {
                own.push(format!("spec.infrastructure.{field}"));
            }
        }
    }
    let label = gateway.metadata.labels.get(FLEET_LABEL);
    if label.is_some_and(|label| class.label(FLEET_LABEL) != Some(label)) {
        own.push(format!("metadata.labels[{FLEET_LABEL}]"));
    }
    let class = &gateway.spec.gateway_class_name;
    let together = format!(
        "the Gateways of GatewayClass {class:?} are served by the same Envoys (spec.fleet.gateways is Merged)"
    );
    if !own.is_empty() {
        let own = own.join(", ");
        let why = format!(
            "{together}: {own} cannot differ for this Gateway; remove it, or set it in the \
            configuration of the class"
        );
        accepted.refuse(Reason::InvalidParameters, why);
    }
    if !gateway.spec.addresses.is_empty() {
        let why = format!(
            "{together}, so one of them cannot have its own addresses; remove \
                spec.addresses"
        );
        accepted.refuse(Reason::UnsupportedAddress, why);
    }
}

/// Returns the ports for the next resolution. Gateways whose own settings were rejected keep their
/// ports, as do Gateways that cannot be published now.
pub(crate) fn served_together<'s>(
    snapshots: impl IntoIterator<Item = &'s Snapshot>,
    checked: &[CheckedGateway<'_>],
    retained: &BTreeSet<NamespacedName>,
    world: &World,
) -> ServedTogether {
    let kept = checked.iter().filter(|it| !it.passed_over.good());
    let kept: BTreeSet<ObjectKey> = kept
        .flat_map(|it| {
            let sets = it.sets.iter().map(|set| &set.owner);
            std::iter::once(&it.owner)
                .chain(sets)
                .map(ListenerOwner::key)
        })
        .collect();
    let mut served = ServedTogether::of(snapshots);
    served.keep(&world.served_together, |name, object| {
        retained.contains(name) || kept.contains(object)
    });
    served
}

/// Returns the names whose last publication remains in effect because parameters are invalid.
pub(crate) fn retained(
    checked: &[CheckedGateway<'_>],
    classes: &Classes<'_>,
    options: &Options,
) -> BTreeSet<NamespacedName> {
    let mut retained = BTreeSet::new();
    for gateway in checked.iter().filter(|it| it.parameters_refused) {
        if is_of_refused_class(gateway, classes) {
            // The Gateway may have been published under either name.
            retained.extend([gateway.name(), merged_name(gateway.class, options)]);
        } else if gateway.merged.is_none() {
            retained.insert(gateway.name());
        }
    }
    retained
}

pub(crate) fn of_refused_classes(
    checked: &[CheckedGateway<'_>],
    classes: &Classes<'_>,
) -> BTreeSet<NamespacedName> {
    let refused = checked.iter().filter(|it| is_of_refused_class(it, classes));
    refused.map(CheckedGateway::name).collect()
}

fn is_of_refused_class(gateway: &CheckedGateway<'_>, classes: &Classes<'_>) -> bool {
    let class = classes.get(gateway.class);
    class.is_some_and(|class| class.parameters == Parameters::Refused)
}

/// Sorts Gateways by key, then by precedence.
pub(crate) fn by_order<'c, 'w>(
    checked: &'c mut [CheckedGateway<'w>],
    key: impl Fn(&CheckedGateway<'w>) -> (NamespacedName, bool),
) -> Vec<&'c mut CheckedGateway<'w>> {
    let mut all: Vec<&mut CheckedGateway<'w>> = checked.iter_mut().collect();
    all.sort_by(|a, b| key(a).cmp(&key(b)).then(a.metadata.by_age(b.metadata)));
    all
}
