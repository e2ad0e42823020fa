//! Determines the settings of a Gateway. The class overrides the controller's settings. Where
//! allowed, the Gateway overrides both.

use std::collections::BTreeSet;

use super::classes::CheckedClass;
use super::merged;
use crate::context::ResolveContext;
use crate::listeners::sets::ListenerSource;
use crate::settings::GatewaySettings;
use crate::settings::parameters::{self, Parameters, Scope};
use crate::tls::certificate_source::{CertificateSource, GATEWAY_ANNOTATION};
use sesame_kinds::api::{Gateway, Infrastructure, NamespacedName};
use sesame_kinds::status::Verdict;
use sesame_kinds::world::{Kind, ObjectKey};

pub(super) struct OwnSettings {
    pub(super) settings: GatewaySettings,
    pub(super) not_understood: Vec<String>,
    /// True if `settings` omits invalid parameters.
    pub(super) parameters_refused: bool,
    pub(super) merged: Option<NamespacedName>,
    /// On error, a merged Gateway uses the class's settings, limited to the ports already served.
    pub(super) passed_over: Verdict,
}

impl OwnSettings {
    /// Reports unusable settings in `accepted`, or in `passed_over` for a merged Gateway that was
    /// already served.
    pub(super) fn find<'w>(
        gateway: &'w Gateway,
        class: &CheckedClass<'_>,
        sets: &[ListenerSource<'_>],
        accepted: &mut Verdict,
        cx: &ResolveContext<'w, '_>,
    ) -> Self {
        let mut refused = Verdict::default();
        let own = own_parameters(gateway, cx, &mut refused);
        let controller_configuration = cx.options.configuration.as_deref();
        let layers: Vec<_> = controller_configuration
            .into_iter()
            .chain(class.parameters.valid())
            .chain(own.valid())
            .collect();
        let annotations = gateway.metadata.annotations.iter();
        let annotations = annotations.filter(|(key, _)| *key != GATEWAY_ANNOTATION);
        let (settings, mut not_understood) = GatewaySettings::of(&layers, &annotations.collect());
        not_understood.extend(CertificateSource::fault(&gateway.metadata));
        let merged = merged::published_as(&gateway.spec.gateway_class_name, class, cx.options);
        let mut found = Self {
            settings,
            not_understood,
            parameters_refused: [class.parameters, own].contains(&Parameters::Refused),
            merged,
            passed_over: Verdict::default(),
        };
        let Some(published_as) = &found.merged else {
            accepted.add(&refused);
            return found;
        };
        merged::check(gateway, class, &found.settings, &mut refused);
        let served = served_before(published_as, gateway, sets, cx);
        if refused.good() || served.is_empty() || class.parameters == Parameters::Refused {
            accepted.add(&refused);
            return found;
        }
        if let Some((reason, why)) = refused.fault() {
            let why = format!(
                "{why}; until that is fixed, its listeners keep their previous ports and use the \
                settings of the class"
            );
            found.passed_over.refuse(reason, why);
        }
        found.settings = class.settings.clone();
        // The Gateway's own parameters may allow fewer ports than the class does.
        let source = "it was served before its own settings were rejected, which";
        found.settings.allow_only(&served, source);
        found.parameters_refused = false;
        found
    }
}

fn own_parameters<'w>(
    gateway: &'w Gateway,
    cx: &ResolveContext<'w, '_>,
    refused: &mut Verdict,
) -> Parameters<'w> {
    let Some(infrastructure) = &gateway.spec.infrastructure else {
        return Parameters::Absent;
    };
    // These fields apply only to objects created for the Gateway.
    let Infrastructure {
        labels: _,
        annotations: _,
        parameters_ref,
    } = infrastructure;
    let field = "spec.infrastructure.parametersRef";
    let scope = Scope::Of(&gateway.metadata.namespace);
    parameters::find(field, parameters_ref.as_ref(), scope, cx.world, refused)
}

fn served_before(
    published_as: &NamespacedName,
    gateway: &Gateway,
    sets: &[ListenerSource<'_>],
    cx: &ResolveContext<'_, '_>,
) -> BTreeSet<u16> {
    let sets = sets.iter().map(ListenerSource::key);
    let objects = std::iter::once(Kind::Gateway.named(gateway.metadata.key())).chain(sets);
    let before = &cx.world.served_together;
    let ports = |object: ObjectKey| before.ports(published_as, &object).cloned();
    objects.filter_map(ports).flatten().collect()
}
