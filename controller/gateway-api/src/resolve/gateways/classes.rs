//! GatewayClasses of ours, and their statuses.

use std::collections::BTreeMap;

use crate::api::{GatewayClassSpec, Metadata, NamespacedName};
use crate::resolve::context::Options;
use crate::resolve::settings::parameters::{self, Parameters, Scope};
use crate::status::{
    Condition, ConditionStatus, ConditionType, GatewayClassStatus, Reason, SupportedFeature,
    Verdict,
};
use crate::world::World;

/// The features of Sesame as a whole, in the words of the conformance suite, by name. Nothing is listed that is not served.
const FEATURES: &[&str] = &[
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayInfrastructure",
    "GatewayPort8080",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetry",
    "HTTPRouteRetryBackendTimeout",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

/// A class that names our controller.
pub(crate) struct CheckedClass<'w> {
    pub(crate) verdict: Verdict,
    metadata: &'w Metadata,
    pub(crate) parameters: Parameters<'w>,
}

/// The classes that name our controller.
pub(crate) struct Classes<'w>(BTreeMap<&'w str, CheckedClass<'w>>);

impl<'w> Classes<'w> {
    pub(crate) fn check(world: &'w World, options: &Options) -> Self {
        let ours = world
            .gateway_classes
            .iter()
            .filter(|class| class.spec.controller_name == options.controller_name);
        Self(
            ours.map(|class| {
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
                let parameters =
                    parameters::find(field, reference, Scope::Named, world, &mut verdict);
                let checked = CheckedClass {
                    verdict,
                    metadata: &class.metadata,
                    parameters,
                };
                (class.metadata.name.as_str(), checked)
            })
            .collect(),
        )
    }

    /// Returns the class; none if it is not ours.
    pub(crate) fn get(&self, name: &str) -> Option<&CheckedClass<'w>> {
        self.0.get(name)
    }

    pub(crate) fn statuses(&self) -> BTreeMap<NamespacedName, GatewayClassStatus> {
        let status = |verdict: &Verdict, generation, message: &str| GatewayClassStatus {
            conditions: vec![
                verdict.accepted(message, generation),
                Condition::new(
                    ConditionType::SupportedVersion,
                    ConditionStatus::True,
                    Reason::SupportedVersion,
                    "Gateway API v1.6 is supported",
                    generation,
                ),
            ],
            supported_features: FEATURES
                .iter()
                .map(|name| SupportedFeature { name })
                .collect(),
        };
        self.0
            .iter()
            .map(|(name, class)| {
                let CheckedClass {
                    verdict,
                    metadata,
                    parameters: _,
                } = class;
                let message = "Gateways of this class are served";
                let message = metadata.unknown.beside(message, "", None);
                let status = status(verdict, metadata.generation, &message);
                (NamespacedName::new("", name), status)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::FEATURES;

    #[test]
    fn features_are_sorted_and_unique() {
        assert!(FEATURES.is_sorted_by(|a, b| a < b));
    }
}
