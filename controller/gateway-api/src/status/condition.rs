//! Conditions, with their types and reasons. Call sites use these enums, never strings.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::SignatureTrust;

/// A condition without its transition time, which is set when the condition is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The aspect that the condition is about.
    #[serde(rename = "type")]
    pub type_: ConditionType,
    /// Whether the condition holds.
    pub status: ConditionStatus,
    /// The machine-readable reason.
    pub reason: Reason,
    /// The human-readable explanation, with the field, the value, the expected value and the
    /// remedy.
    pub message: String,
    /// The observed generation of the object; 0 for objects from files.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// Certificate trust on which the condition depends; it ends when certificates expire. Usually
    /// `None`.
    #[serde(skip)]
    pub trust: Option<Arc<[SignatureTrust]>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[doc = $meaning:literal])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[doc = $meaning])* $variant,)+ }

        impl $name {
            /// All values, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the value's meaning: its doc comment, which the conditions reference also
            /// shows.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($meaning),*).trim_ascii(),)+ }
            }

            /// Returns the value as the API spells it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Parses a value, or returns `None` if it is unknown.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

words! {
    /// `metav1.ConditionStatus`.
    ConditionStatus {
        /// The condition holds.
        True = "True",
        /// The condition does not hold.
        False = "False",
        /// Not known yet.
        Unknown = "Unknown",
    }
}

words! {
    /// The aspect that a condition describes. The variants are in the order in which an object's
    /// conditions are listed.
    ConditionType {
        /// Every kind: the object is valid and accepted by its parents.
        Accepted = "Accepted",
        /// Gateways, listeners, ListenerSets: Envoy has accepted the configuration on the number of hosts that the message states, and the Gateway has its addresses.
        Programmed = "Programmed",
        /// Gateways, listeners, routes, policies: everything that the object refers to exists, is permitted and can be used.
        ResolvedRefs = "ResolvedRefs",
        /// Listeners: another listener has the same port and hostname, or a protocol that cannot share the port.
        Conflicted = "Conflicted",
        /// Listeners: certificates or hostnames of listeners on the same port overlap. Requests that arrive on a connection for another listener get 421.
        OverlappingTlsConfig = "OverlappingTLSConfig",
        /// HTTPProxies: everything is served as written.
        Valid = "Valid",
        /// Routes: some rules are invalid and left out; the others are served.
        PartiallyInvalid = "PartiallyInvalid",
        /// Gateways: clients are accepted without a verified certificate, as the Gateway requests.
        InsecureFrontendValidationMode = "InsecureFrontendValidationMode",
        /// Gateways: every requested address is assigned. Absent if no addresses are requested.
        AddressesAssigned = "AddressesAssigned",
        /// GatewayClasses: this version of Sesame supports the installed release of the Gateway API's definitions.
        SupportedVersion = "SupportedVersion",
        /// Gateways and listeners: whether certificates have expired, are not valid yet, or expire soon. Absent if none of this applies to any certificate.
        CertificatesValid = "projectsesame.io/CertificatesValid",
        /// Listeners: whether the agents' test handshakes get the newest certificate. Absent if they do.
        CertificatesShown = "projectsesame.io/CertificatesShown",
        /// Gateways: problems with the Service that the controller maintains for the Gateway. Absent if there are none.
        GatewayService = "projectsesame.io/Service",
        /// Gateways: the fleet that the controller manages. Present only with problems, or if an adoption awaits consent.
        GatewayFleet = "projectsesame.io/Fleet",
        /// Gateways: the controller has released the fleet, which you manage from then on.
        FleetReleased = "projectsesame.io/Released",
        /// Routes: part of the route is not served, because another route or tenant takes precedence.
        Displaced = "projectsesame.io/Displaced",
        /// Gateways and routes: backends are reached over the mTLS of a mesh.
        Meshed = "projectsesame.io/Meshed",
        /// Gateways, ListenerSets and routes: TrafficPolicies apply to requests. Absent if no policy targets the object itself.
        TrafficPolicyAffected = "projectsesame.io/TrafficPolicyAffected",
        /// Gateways, ListenerSets and routes: AccessPolicies restrict requests. Absent if no policy targets the object itself.
        AccessPolicyAffected = "projectsesame.io/AccessPolicyAffected",
        /// Gateways and mesh policies: the mesh trusts the Gateway's client certificate. Absent unless a mesh declares its trust.
        ClientCertificateTrusted = "projectsesame.io/ClientCertificateTrusted",
    }
}

words! {
    /// The reason for the status of a condition.
    Reason {
        /// All is well.
        Accepted = "Accepted",
        /// The Gateway has no address yet; the message names the component that assigns it.
        AddressNotAssigned = "AddressNotAssigned",
        /// No host has the requested address, or it was not assigned.
        AddressNotUsable = "AddressNotUsable",
        /// The Service, or its port, does not exist. Its share of requests gets 500.
        BackendNotFound = "BackendNotFound",
        /// A certificate has expired; it is still served.
        CertificateExpired = "CertificateExpired",
        /// A certificate expires within 14 days, or within the last third of its lifetime if that is shorter.
        CertificateExpiresSoon = "CertificateExpiresSoon",
        /// Handshakes get a certificate other than the newest one.
        CertificateNotShown = "CertificateNotShown",
        /// The mesh does not trust the CA of the Gateway's client certificate; traffic is still sent.
        CertificateNotTrusted = "CertificateNotTrusted",
        /// A certificate is not valid yet; it is still served.
        CertificateNotYetValid = "CertificateNotYetValid",
        /// The mesh trusts the certificate.
        CertificateTrusted = "CertificateTrusted",
        /// The Gateway accepts clients without a verified certificate.
        ConfigurationChanged = "ConfigurationChanged",
        /// Another policy for the same target takes precedence.
        Conflicted = "Conflicted",
        /// The HTTPProxy has errors; they are listed below the condition.
        ErrorPresent = "ErrorPresent",
        /// An object of the fleet could not be created; the message names it.
        FleetIncomplete = "FleetIncomplete",
        /// Another listener has the same port, protocol and hostname.
        HostnameConflict = "HostnameConflict",
        /// Another Gateway or ListenerSet has a more specific listener for the hostname.
        HostnameTaken = "HostnameTaken",
        /// Filters of a rule cannot be combined.
        IncompatibleFilters = "IncompatibleFilters",
        /// A value is invalid, or Envoy rejects it; the message has the field or Envoy's message.
        Invalid = "Invalid",
        /// A reference to CA certificates names an unsupported kind.
        InvalidCaCertificateKind = "InvalidCACertificateKind",
        /// Referenced CA certificates do not exist or cannot be read.
        InvalidCaCertificateRef = "InvalidCACertificateRef",
        /// The Secret of a certificate does not exist, has the wrong type, or does not contain a valid key pair.
        InvalidCertificateRef = "InvalidCertificateRef",
        /// The Gateway's client certificate for backends cannot be used.
        InvalidClientCertificateRef = "InvalidClientCertificateRef",
        /// A reference names an unsupported kind.
        InvalidKind = "InvalidKind",
        /// A filter of the listener is not valid; the listener is not served.
        InvalidListenerFilter = "InvalidListenerFilter",
        /// A filter of the listener refers to a missing or unusable object; its requests are rejected.
        InvalidListenerFilterRef = "InvalidListenerFilterRef",
        /// `parametersRef` names a missing object, an object of the wrong kind, or an invalid configuration.
        InvalidParameters = "InvalidParameters",
        /// `allowedRoutes.kinds` contains a kind that the listener's protocol cannot serve.
        InvalidRouteKinds = "InvalidRouteKinds",
        /// The trust bundle of a mesh is missing, empty or malformed.
        InvalidTrustBundle = "InvalidTrustBundle",
        /// References of some listeners are not resolved; see their conditions.
        ListenersNotResolved = "ListenersNotResolved",
        /// Some listeners are invalid; see their conditions. With status `True`, the others are served.
        ListenersNotValid = "ListenersNotValid",
        /// Backends are reached over mTLS.
        Meshed = "Meshed",
        /// An object of the same name exists and does not belong to the controller.
        NameTaken = "NameTaken",
        /// All is well.
        NoConflicts = "NoConflicts",
        /// No listener has a hostname in common with the route.
        NoMatchingListenerHostname = "NoMatchingListenerHostname",
        /// The parent has no listener with this name or port.
        NoMatchingParent = "NoMatchingParent",
        /// No CA certificate can be used, so nothing can be verified; the message lists them.
        NoValidCaCertificate = "NoValidCACertificate",
        /// The Gateway's `allowedListeners` does not permit this ListenerSet.
        NotAllowed = "NotAllowed",
        /// The listeners' `allowedRoutes` does not permit the route's namespace or kind.
        NotAllowedByListeners = "NotAllowedByListeners",
        /// None of the requested addresses is assigned.
        NotAssigned = "NotAssigned",
        /// Only the oldest GatewayClass is served here, and this one is newer.
        OlderGatewayClassExists = "OlderGatewayClassExists",
        /// Only the oldest Gateway is served here, and this one is newer.
        OlderGatewayExists = "OlderGatewayExists",
        /// An older route uses the listener, which can serve only one route.
        OtherRoute = "OtherRoute",
        /// A listener's certificate is also valid for a hostname of another listener on the same port.
        OverlappingCertificates = "OverlappingCertificates",
        /// The hostnames of two listeners on the same port overlap.
        OverlappingHostnames = "OverlappingHostnames",
        /// The Gateway of the ListenerSet is not accepted.
        ParentNotAccepted = "ParentNotAccepted",
        /// The Gateway of the ListenerSet is not programmed.
        ParentNotProgrammed = "ParentNotProgrammed",
        /// Some of the requested addresses are missing; the message lists them.
        PartiallyAssigned = "PartiallyAssigned",
        /// Hosts have not reported yet; the message names them.
        Pending = "Pending",
        /// The port is not allowed (`spec.ports.allowed`), or hosts open it for another port of the Gateway (`spec.ports.map`, `spec.ports.offset`).
        PortUnavailable = "PortUnavailable",
        /// All is well.
        Programmed = "Programmed",
        /// Another listener uses the port with a protocol that cannot share it.
        ProtocolConflict = "ProtocolConflict",
        /// Policies apply to the object.
        PolicyAffected = "PolicyAffected",
        /// No ReferenceGrant permits the reference to another namespace.
        RefNotPermitted = "RefNotPermitted",
        /// The controller no longer manages the fleet.
        Released = "Released",
        /// All is well.
        ResolvedRefs = "ResolvedRefs",
        /// All is well.
        SupportedVersion = "SupportedVersion",
        /// The target of the policy does not exist.
        TargetNotFound = "TargetNotFound",
        /// The routes for the hostname or in the namespace are too large; the newest are left out.
        TooLarge = "TooLarge",
        /// Regular expressions for the hostname are too costly; the newest routes lose theirs.
        TooManyExpressions = "TooManyExpressions",
        /// The namespace has used up its share of the Gateway's listeners.
        TooManyListeners = "TooManyListeners",
        /// The address type is not supported.
        UnsupportedAddress = "UnsupportedAddress",
        /// The protocol of the listener or of the Service's port is not supported.
        UnsupportedProtocol = "UnsupportedProtocol",
        /// The field in the message has an unsupported value, or it is unknown and may be security-relevant. The object or part that contains it is not served.
        UnsupportedValue = "UnsupportedValue",
        /// This version of Sesame does not support the installed release of the Gateway API's definitions.
        UnsupportedVersion = "UnsupportedVersion",
        /// Everything is served as written.
        Valid = "Valid",
    }
}
