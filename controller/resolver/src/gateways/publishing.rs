//! The settings and Service requests of all Gateways, by published name.

use std::collections::BTreeMap;

use super::CheckedGateway;
use super::classes::Classes;
use super::merged;
use super::service_request::ServiceRequest;
use crate::context::Options;
use crate::settings::GatewaySettings;
use sesame_kinds::api::NamespacedName;

/// Omits Gateways with invalid parameters.
pub(crate) fn all(
    checked: &[CheckedGateway<'_>],
    classes: &Classes<'_>,
    options: &Options,
) -> (
    BTreeMap<NamespacedName, GatewaySettings>,
    BTreeMap<NamespacedName, ServiceRequest>,
) {
    let (mut settings, mut services) = (BTreeMap::new(), BTreeMap::new());
    let known = checked
        .iter()
        .filter(|it| !it.parameters_refused && !merged::is_of_class(&it.name(), classes, options));
    for gateway in known {
        settings.insert(gateway.name(), gateway.settings.clone());
        let class = classes.get(gateway.class);
        match (gateway.merged.clone(), class) {
            (Some(name), Some(class)) if gateway.accepted.good() => {
                settings.insert(name.clone(), class.settings.clone());
                let all: &mut ServiceRequest = services.entry(name).or_default();
                all.add(ServiceRequest::of(gateway));
            }
            (Some(_), _) => {}
            (None, _) => {
                services.insert(gateway.name(), ServiceRequest::of(gateway));
            }
        }
    }
    (settings, services)
}
