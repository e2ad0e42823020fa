//! GatewayClasses whose Gateways are served together, by the same Envoys.
//!
//! They are published under one name, the class's in the controller's namespace, which stays
//! whichever Gateway comes or goes. The class decides on settings that Envoys have once. A Gateway
//! with another value is refused, harms no other, and keeps its last state if it was served.

use std::collections::BTreeSet;

use sesame_proto::schema::Snapshot;

use super::CheckedGateway;
use super::classes::{CheckedClass, Classes};
use crate::api::{FLEET_LABEL, Gateway, Infrastructure, NamespacedName};
use crate::resolve::context::Options;
use crate::resolve::listeners::ListenerOwner;
use crate::resolve::settings::GatewaySettings;
use crate::resolve::settings::parameters::Parameters;
use crate::status::{Reason, Verdict};
use crate::world::{ObjectKey, ServedTogether, World};

/// A Gateway that is served together with others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergedGateway {
    /// Name under which they are published.
    pub published_as: NamespacedName,
    /// Names of the keys of this Gateway.
    pub keys: BTreeSet<String>,
}

/// Returns the name under which the Gateways of a class are published if they are served together.
pub fn merged_name(class: &str, options: &Options) -> NamespacedName {
    NamespacedName::new(&options.namespace, class)
}

/// Returns the name under which this class's Gateways are merged, or `None` if they are not.
pub(super) fn published_as(
    class: &str,
    checked: &CheckedClass<'_>,
    options: &Options,
) -> Option<NamespacedName> {
    let merged = checked.settings.is_merged();
    merged.then(|| merged_name(class, options))
}

/// Returns true if Gateways of a class are published under this name.
pub(crate) fn is_of_class(name: &NamespacedName, classes: &Classes<'_>, options: &Options) -> bool {
    let class = classes.get(&name.name);
    let is_merged = class.is_some_and(|class| class.settings.is_merged());
    is_merged && *name == merged_name(&name.name, options)
}

/// Refuses a Gateway with the name under which others are published.
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

/// Refuses a Gateway that sets a value which all Gateways of its class have in common. `settings`
/// are its own.
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
            // Its fields are among the settings.
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

/// Returns the ports of merged Gateways, for the next world: from these snapshots, and earlier ones
/// for Gateways that keep their last state.
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

/// Returns the names that cannot be published now, because the parameters are invalid. Their
/// publications stay.
pub(crate) fn retained(
    checked: &[CheckedGateway<'_>],
    classes: &Classes<'_>,
    options: &Options,
) -> BTreeSet<NamespacedName> {
    let mut retained = BTreeSet::new();
    for gateway in checked.iter().filter(|it| it.parameters_refused) {
        let class = classes.get(gateway.class);
        if class.is_some_and(|class| class.parameters == Parameters::Refused) {
            // Their previous form is unknown.
            retained.extend([gateway.name(), merged_name(gateway.class, options)]);
        } else if gateway.merged.is_none() {
            retained.insert(gateway.name());
        }
    }
    retained
}

/// Groups the Gateways by `key`, in order of precedence.
pub(crate) fn by_order<'c, 'w>(
    checked: &'c mut [CheckedGateway<'w>],
    key: impl Fn(&CheckedGateway<'w>) -> (NamespacedName, bool),
) -> Vec<&'c mut CheckedGateway<'w>> {
    let mut all: Vec<&mut CheckedGateway<'w>> = checked.iter_mut().collect();
    all.sort_by(|a, b| key(a).cmp(&key(b)).then(a.metadata.by_age(b.metadata)));
    all
}
