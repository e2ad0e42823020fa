//! Conditions, with their types and reasons. Call sites use these enums, never strings.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::SignatureTrust;

/// A condition without its transition time, which is set when the condition is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The condition's type.
    #[serde(rename = "type")]
    pub type_: ConditionType,
    /// Whether the condition holds.
    pub status: ConditionStatus,
    /// The machine-readable reason.
    pub reason: Reason,
    /// The human-readable message, with the field, its value, the expected value and the remedy.
    pub message: String,
    /// The object's observed generation; 0 for objects from files.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// Trust paths that the condition depends on: if none is valid now, the condition is False.
    /// Usually `None`.
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

            /// Returns the value's doc comment, which the conditions reference also shows.
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
    /// Condition types, in the order in which they appear in an object's status.
    ConditionType {
        /// Every kind: the object is valid and accepted by its parents.
        Accepted = "Accepted",
        /// Gateways, listeners, ListenerSets: Envoy has accepted the configuration on at least one host, and the Gateway has its addresses. The message states the number of hosts. Ingresses: False if their Gateway is not accepted, else absent.
        Programmed = "Programmed",
        /// Gateways, listeners, routes, policies: all references are permitted, and the referenced objects exist and are usable.
        ResolvedRefs = "ResolvedRefs",
        /// Listeners: another listener has the same port and hostname, or a protocol that cannot share the port.
        Conflicted = "Conflicted",
        /// Listeners: certificates or hostnames of listeners on the same port overlap. Requests on a connection for another listener get 421.
        OverlappingTlsConfig = "OverlappingTLSConfig",
        /// HTTPProxies and ExtensionServices: the whole object is served as written.
        Valid = "Valid",
        /// Routes: some rules are invalid and not served; the others are served.
        PartiallyInvalid = "PartiallyInvalid",
        /// Gateways: the Gateway is configured to accept clients without a verified certificate.
        InsecureFrontendValidationMode = "InsecureFrontendValidationMode",
        /// Gateways: every requested address is assigned. Absent if no addresses are requested.
        AddressesAssigned = "AddressesAssigned",
        /// GatewayClasses: this version of Sesame supports the installed release of the Gateway API CRDs.
        SupportedVersion = "SupportedVersion",
        /// Gateways and listeners: whether all certificates are currently valid. Absent unless a certificate has expired, is not valid yet, or expires soon.
        CertificatesValid = "projectsesame.io/CertificatesValid",
        /// Listeners: whether the agents' test handshakes get the newest certificate. Absent if they do.
        CertificatesShown = "projectsesame.io/CertificatesShown",
        /// Gateways: problems with the Service that the controller maintains for the Gateway. Absent if there are none.
        GatewayService = "projectsesame.io/Service",
        /// Gateways: problems with the fleet that the controller manages, or an adoption that awaits consent. Absent otherwise.
        GatewayFleet = "projectsesame.io/Fleet",
        /// Gateways: the controller has released the fleet, so you now manage it.
        FleetReleased = "projectsesame.io/Released",
        /// Routes and Ingresses: part of the object is not served, because another object takes precedence.
        Displaced = "projectsesame.io/Displaced",
        /// Gateways and routes: backends are reached over a mesh's mTLS.
        Meshed = "projectsesame.io/Meshed",
        /// Gateways, ListenerSets and routes: TrafficPolicies apply to requests. Absent if no policy targets the object itself.
        TrafficPolicyAffected = "projectsesame.io/TrafficPolicyAffected",
        /// Gateways, ListenerSets and routes: AccessPolicies restrict requests. Absent if no policy targets the object itself.
        AccessPolicyAffected = "projectsesame.io/AccessPolicyAffected",
        /// Gateways and mesh policies: the mesh trusts the Gateway's client certificate. Absent unless a mesh declares which certificates it trusts.
        ClientCertificateTrusted = "projectsesame.io/ClientCertificateTrusted",
    }
}

words! {
    /// The reason for a condition's status.
    Reason {
        /// All is well.
        Accepted = "Accepted",
        /// The Gateway has no address yet; the message names the component that assigns it.
        AddressNotAssigned = "AddressNotAssigned",
        /// No host has the requested address, or it was not assigned.
        AddressNotUsable = "AddressNotUsable",
        /// The Service or its port does not exist. The backend's share of requests gets 500.
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
        /// The HTTPProxy or ExtensionService has errors; the message lists them.
        ErrorPresent = "ErrorPresent",
        /// A fleet object could not be created; the message names it.
        FleetIncomplete = "FleetIncomplete",
        /// Another listener has the same port, protocol and hostname.
        HostnameConflict = "HostnameConflict",
        /// Another Gateway or ListenerSet has a more specific listener for the hostname.
        HostnameTaken = "HostnameTaken",
        /// A rule's filters cannot be combined.
        IncompatibleFilters = "IncompatibleFilters",
        /// A value is invalid, or Envoy rejects it; the message contains the field or Envoy's error.
        Invalid = "Invalid",
        /// A reference to CA certificates names an unsupported kind.
        InvalidCaCertificateKind = "InvalidCACertificateKind",
        /// Referenced CA certificates do not exist or cannot be read.
        InvalidCaCertificateRef = "InvalidCACertificateRef",
        /// The certificate's Secret does not exist, has the wrong type, or does not contain a valid key pair.
        InvalidCertificateRef = "InvalidCertificateRef",
        /// The Gateway's client certificate for backends cannot be used.
        InvalidClientCertificateRef = "InvalidClientCertificateRef",
        /// A reference names an unsupported kind.
        InvalidKind = "InvalidKind",
        /// A listener filter is invalid; the listener is not served.
        InvalidListenerFilter = "InvalidListenerFilter",
        /// A listener filter refers to a missing or unusable object; the listener's requests are rejected.
        InvalidListenerFilterRef = "InvalidListenerFilterRef",
        /// `parametersRef` names a missing object, an object of the wrong kind, or an invalid configuration.
        InvalidParameters = "InvalidParameters",
        /// `allowedRoutes.kinds` contains a kind that the listener's protocol cannot serve.
        InvalidRouteKinds = "InvalidRouteKinds",
        /// A mesh's trust bundle is missing, empty or malformed.
        InvalidTrustBundle = "InvalidTrustBundle",
        /// Some listeners have unresolved references; see their conditions.
        ListenersNotResolved = "ListenersNotResolved",
        /// Some listeners are invalid; see their conditions. With status `True`, the others are served.
        ListenersNotValid = "ListenersNotValid",
        /// Backends are reached over mTLS.
        Meshed = "Meshed",
        /// An object with the same name exists, but does not belong to the controller.
        NameTaken = "NameTaken",
        /// All is well.
        NoConflicts = "NoConflicts",
        /// None of the route's hostnames matches a listener's hostname.
        NoMatchingListenerHostname = "NoMatchingListenerHostname",
        /// The parent has no listener with this name or port.
        NoMatchingParent = "NoMatchingParent",
        /// No CA certificate is usable, so certificates cannot be verified; the message lists the errors.
        NoValidCaCertificate = "NoValidCACertificate",
        /// The Gateway's `allowedListeners` does not permit this ListenerSet.
        NotAllowed = "NotAllowed",
        /// No listener's `allowedRoutes` permits the route's namespace or kind.
        NotAllowedByListeners = "NotAllowedByListeners",
        /// None of the requested addresses is assigned.
        NotAssigned = "NotAssigned",
        /// Only the oldest GatewayClass is served, and this GatewayClass is newer.
        OlderGatewayClassExists = "OlderGatewayClassExists",
        /// Only the oldest Gateway is served, and this Gateway is newer.
        OlderGatewayExists = "OlderGatewayExists",
        /// An older route uses the listener, which can serve only one route.
        OtherRoute = "OtherRoute",
        /// A listener's certificate is also valid for a hostname of another listener on the same port.
        OverlappingCertificates = "OverlappingCertificates",
        /// The hostnames of two listeners on the same port overlap.
        OverlappingHostnames = "OverlappingHostnames",
        /// Objects that take precedence get all of a route's requests, or an Ingress's requests or TLS host; the message names the first.
        Overridden = "Overridden",
        /// The ListenerSet's Gateway is not accepted.
        ParentNotAccepted = "ParentNotAccepted",
        /// The ListenerSet's Gateway is not programmed.
        ParentNotProgrammed = "ParentNotProgrammed",
        /// Some of the requested addresses are missing; the message lists them.
        PartiallyAssigned = "PartiallyAssigned",
        /// Hosts have not reported yet; the message names them.
        Pending = "Pending",
        /// The port is not allowed (`spec.ports.allowed`), or hosts already use it for another Gateway port (`spec.ports.map`, `spec.ports.offset`).
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
        /// The policy's target does not exist.
        TargetNotFound = "TargetNotFound",
        /// The hostname's or namespace's routes are too large; the newest routes are not served.
        TooLarge = "TooLarge",
        /// The hostname's regular expressions are too costly; the newest routes with expressions are not served for the hostname.
        TooManyExpressions = "TooManyExpressions",
        /// The namespace has used up its share of the Gateway's listeners.
        TooManyListeners = "TooManyListeners",
        /// The address type is not supported.
        UnsupportedAddress = "UnsupportedAddress",
        /// The listener's or Service port's protocol is not supported.
        UnsupportedProtocol = "UnsupportedProtocol",
        /// The field in the message has an unsupported value, or it is unknown and may be security-relevant. The object or part that contains it is not served.
        UnsupportedValue = "UnsupportedValue",
        /// This version of Sesame does not support the installed release of the Gateway API CRDs.
        UnsupportedVersion = "UnsupportedVersion",
        /// The whole HTTPProxy or ExtensionService is served as written.
        Valid = "Valid",
    }
}
