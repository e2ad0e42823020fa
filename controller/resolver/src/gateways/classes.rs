//! Validates the GatewayClasses of this controller and computes their statuses.

use std::collections::BTreeMap;

use super::features;
use crate::context::Options;
use crate::settings::GatewaySettings;
use crate::settings::parameters::{self, Parameters, Scope};
use sesame_kinds::api::{FleetGateways, GatewayClassSpec, Labels, Metadata, NamespacedName};
use sesame_kinds::status::{
    Condition, ConditionStatus, ConditionType, GatewayClassStatus, Reason, SupportedFeature,
    Verdict,
};
use sesame_kinds::world::{Definitions, World};

pub(crate) struct CheckedClass<'w> {
    pub(crate) verdict: Verdict,
    metadata: &'w Metadata,
    pub(crate) parameters: Parameters<'w>,
    pub(crate) settings: GatewaySettings,
}

impl CheckedClass<'_> {
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.metadata.labels.get(name)
    }

    pub(crate) fn gateways(&self) -> &FleetGateways {
        self.settings.gateways()
    }
}

pub(crate) struct Classes<'w> {
    all: BTreeMap<&'w str, CheckedClass<'w>>,
    definitions: &'w Definitions,
    extra_minimal_ocg: bool,
}

impl<'w> Classes<'w> {
    pub(crate) fn check(world: &'w World, options: &Options) -> Self {
        let ours = world
            .gateway_classes
            .iter()
            .filter(|class| class.spec.controller_name == options.controller_name);
        let all = ours.map(|class| {
            let GatewayClassSpec {
                controller_name: _,
                parameters_ref,
                description: _,
            } = &class.spec;
            let mut verdict = Verdict::default();
            let unknown = class.metadata.unknown.refusal("");
            verdict.refuse_if(Reason::UnsupportedValue, unknown);
            let reference = parameters_ref.as_ref();
            let field = "spec.parametersRef";
            let parameters = parameters::find(field, reference, Scope::Named, world, &mut verdict);
            let controller_configuration = options.configuration.as_deref().into_iter();
            let layers: Vec<_> = controller_configuration.chain(parameters.valid()).collect();
            let (settings, _) = GatewaySettings::of(&layers, &Labels::default());
            let checked = CheckedClass {
                verdict,
                metadata: &class.metadata,
                parameters,
                settings,
            };
            (class.metadata.name.as_str(), checked)
        });
        Self {
            all: all.collect(),
            definitions: &world.definitions,
            extra_minimal_ocg: options.extra_minimal_ocg,
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&CheckedClass<'w>> {
        self.all.get(name)
    }

    fn version(&self, generation: i64) -> Condition {
        let type_ = ConditionType::SupportedVersion;
        if let Some(why) = features::unsupported(self.definitions) {
            let (status, reason) = (ConditionStatus::False, Reason::UnsupportedVersion);
            return Condition::new(type_, status, reason, &why, generation);
        }
        let (status, reason) = (ConditionStatus::True, Reason::SupportedVersion);
        let message = features::supported(self.definitions);
        Condition::new(type_, status, reason, &message, generation)
    }

    pub(crate) fn statuses(&self) -> BTreeMap<NamespacedName, GatewayClassStatus> {
        let status = |verdict: &Verdict, generation, message: &str| GatewayClassStatus {
            conditions: vec![
                verdict.accepted(message, generation),
                self.version(generation),
            ],
            supported_features: features::claimed(self.definitions, self.extra_minimal_ocg)
                .into_iter()
                .map(|name| SupportedFeature { name })
                .collect(),
        };
        self.all
            .iter()
            .map(|(name, class)| {
                let CheckedClass {
                    verdict,
                    metadata,
                    parameters: _,
                    settings: _,
                } = class;
                let message = "Gateways of this class are served";
                let message = metadata.unknown.append_harmless(message, "", None);
                let status = status(verdict, metadata.generation, &message);
                (NamespacedName::new("", name), status)
            })
            .collect()
    }
}
