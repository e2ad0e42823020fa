//! Conditions and their vocabulary. Call sites name a type and a reason, never a string.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::SignatureTrust;

/// A condition without its time, which is set when it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The judged aspect.
    #[serde(rename = "type")]
    pub type_: ConditionType,
    /// The judgement.
    pub status: ConditionStatus,
    /// The reason, for programs.
    pub reason: Reason,
    /// The explanation for people: names the field, the value, the expected value and the remedy.
    pub message: String,
    /// The observed generation of the object; 0 for objects from files.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// The trust that it depends on, which ends with certificates; `None` for most.
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
            /// All values, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the meaning of the value: its doc comment here, which is also on the page of
            /// conditions.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($meaning),*).trim_ascii(),)+ }
            }

            /// Returns the value as the API writes it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Parses the text, or returns `None` if it is not a known value.
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
        /// It is so.
        True = "True",
        /// It is not so.
        False = "False",
        /// It is not known yet.
        Unknown = "Unknown",
    }
}

words! {
    /// The aspect that a condition judges, in the order in which the conditions of an object are listed.
    ConditionType {
        /// Every kind: the object is valid, and what it is attached to takes it.
        Accepted = "Accepted",
        /// Gateways, their listeners, ListenerSets: Envoy has accepted the configuration, on as many hosts as the message says, and the Gateway has its addresses.
        Programmed = "Programmed",
        /// Gateways, listeners, routes, policies: everything that the object refers to exists, is permitted and can be used.
        ResolvedRefs = "ResolvedRefs",
        /// Listeners: another listener has the same port and hostname, or a protocol that cannot share the port.
        Conflicted = "Conflicted",
        /// Listeners: certificates or hostnames of listeners on the same port overlap, so that a connection for one can carry requests for the other; those are answered with 421.
        OverlappingTlsConfig = "OverlappingTLSConfig",
        /// Routes: some rules are left out, and the others are served.
        PartiallyInvalid = "PartiallyInvalid",
        /// Gateways: clients are let in whose certificate could not be verified, as the Gateway asks for.
        InsecureFrontendValidationMode = "InsecureFrontendValidationMode",
        /// Gateways: every address that the Gateway asks for is there. It is absent where none is asked for.
        AddressesAssigned = "AddressesAssigned",
        /// GatewayClasses: the installed definitions of the Gateway API are of a release that this version knows.
        SupportedVersion = "SupportedVersion",
        /// Gateways and listeners: whether certificates have expired, are not valid yet, or expire soon. It is there only when there is something to say.
        CertificatesValid = "projectsesame.io/CertificatesValid",
        /// Listeners: whether handshakes of the agents with their own listeners show the newest certificate. It is there only when they do not.
        CertificatesShown = "projectsesame.io/CertificatesShown",
        /// Gateways: the Service that the controller keeps for the Gateway. It is there only when something is wrong with it.
        GatewayService = "projectsesame.io/Service",
        /// Gateways: the agents and Envoys that the controller keeps for the Gateway. It is there only when something is wrong with them, or when a fleet that is there already waits for consent.
        GatewayFleet = "projectsesame.io/Fleet",
        /// Gateways: the controller has let go of the fleet, which is yours from then on.
        FleetReleased = "projectsesame.io/Released",
        /// Routes: part of the route is not served, because another route or tenant takes precedence.
        Displaced = "projectsesame.io/Displaced",
        /// Gateways and routes: backends are reached over the mTLS of a mesh.
        Meshed = "projectsesame.io/Meshed",
        /// Gateways and mesh policies: whether the mesh trusts the certificate that the Gateway shows to it. It is there only where a mesh says what it trusts.
        ClientCertificateTrusted = "projectsesame.io/ClientCertificateTrusted",
    }
}

words! {
    /// The reason for the status of a condition.
    Reason {
        /// All is well.
        Accepted = "Accepted",
        /// The Gateway has no address yet; the message names who is to give it.
        AddressNotAssigned = "AddressNotAssigned",
        /// No host has the address that the Gateway asks for, or nobody gave it.
        AddressNotUsable = "AddressNotUsable",
        /// The Service, or its port, does not exist. Its share of requests gets 500.
        BackendNotFound = "BackendNotFound",
        /// A certificate has expired; it is served all the same.
        CertificateExpired = "CertificateExpired",
        /// A certificate expires within 14 days, or is in the last third of a shorter life.
        CertificateExpiresSoon = "CertificateExpiresSoon",
        /// Handshakes show another certificate than the newest one.
        CertificateNotShown = "CertificateNotShown",
        /// No CA certificate that a mesh trusts has signed the certificate that the Gateway shows to it; traffic goes on.
        CertificateNotTrusted = "CertificateNotTrusted",
        /// A certificate begins to be valid later; it is served all the same.
        CertificateNotYetValid = "CertificateNotYetValid",
        /// All is well: the mesh trusts the certificate.
        CertificateTrusted = "CertificateTrusted",
        /// The Gateway asks for client certificates in a mode that lets in those who cannot be verified.
        ConfigurationChanged = "ConfigurationChanged",
        /// Another policy for the same target takes precedence.
        Conflicted = "Conflicted",
        /// Something of the fleet could not be made; the message says what.
        FleetIncomplete = "FleetIncomplete",
        /// Another listener has the same port, protocol and hostname.
        HostnameConflict = "HostnameConflict",
        /// Another Gateway or ListenerSet has a listener for the hostname that is more specific, so requests for it do not come here.
        HostnameTaken = "HostnameTaken",
        /// Filters of a rule exclude one another.
        IncompatibleFilters = "IncompatibleFilters",
        /// A value is not valid, or Envoy refuses it; the message has the field or the words of Envoy.
        Invalid = "Invalid",
        /// A reference to CA certificates names a kind other than those that are supported.
        InvalidCaCertificateKind = "InvalidCACertificateKind",
        /// CA certificates that are referred to do not exist or cannot be read.
        InvalidCaCertificateRef = "InvalidCACertificateRef",
        /// The Secret of a certificate does not exist, has another type, or holds no valid pair.
        InvalidCertificateRef = "InvalidCertificateRef",
        /// The certificate that the Gateway shows to backends cannot be used.
        InvalidClientCertificateRef = "InvalidClientCertificateRef",
        /// A reference names a kind that is not supported there.
        InvalidKind = "InvalidKind",
        /// A filter of the listener is not valid; the listener is not served.
        InvalidListenerFilter = "InvalidListenerFilter",
        /// A filter of the listener refers to something that does not exist or cannot be used; its requests are refused.
        InvalidListenerFilterRef = "InvalidListenerFilterRef",
        /// `parametersRef` leads to nothing, to another kind, or to a configuration that is not valid.
        InvalidParameters = "InvalidParameters",
        /// `allowedRoutes.kinds` has a kind that the protocol of the listener cannot serve.
        InvalidRouteKinds = "InvalidRouteKinds",
        /// The trust bundle of a mesh is missing, empty or malformed.
        InvalidTrustBundle = "InvalidTrustBundle",
        /// References of some listeners are not resolved; each says which.
        ListenersNotResolved = "ListenersNotResolved",
        /// Some listeners are not valid; each says why. With status `True`, the others are served.
        ListenersNotValid = "ListenersNotValid",
        /// All is well: backends are reached over mTLS.
        Meshed = "Meshed",
        /// An object of the same name exists, and is not the controller's.
        NameTaken = "NameTaken",
        /// All is well.
        NoConflicts = "NoConflicts",
        /// No listener has a hostname in common with the route.
        NoMatchingListenerHostname = "NoMatchingListenerHostname",
        /// The parent has no listener with this name or port.
        NoMatchingParent = "NoMatchingParent",
        /// No CA certificate can be used, so nothing can be verified; the message names each.
        NoValidCaCertificate = "NoValidCACertificate",
        /// `allowedListeners` of the Gateway does not permit this ListenerSet.
        NotAllowed = "NotAllowed",
        /// `allowedRoutes` of the listeners permits neither the namespace nor the kind of the route.
        NotAllowedByListeners = "NotAllowedByListeners",
        /// None of the addresses that the Gateway asks for is there.
        NotAssigned = "NotAssigned",
        /// Only the oldest GatewayClass is served here, and this is another one.
        OlderGatewayClassExists = "OlderGatewayClassExists",
        /// Only the oldest Gateway is served here, and this is another one.
        OlderGatewayExists = "OlderGatewayExists",
        /// An older route has the listener, which can serve one only.
        OtherRoute = "OtherRoute",
        /// A certificate of one listener is for a hostname of another listener of the port.
        OverlappingCertificates = "OverlappingCertificates",
        /// Hostnames of two listeners of the port overlap.
        OverlappingHostnames = "OverlappingHostnames",
        /// The Gateway of the ListenerSet is not accepted.
        ParentNotAccepted = "ParentNotAccepted",
        /// The Gateway of the ListenerSet is not programmed.
        ParentNotProgrammed = "ParentNotProgrammed",
        /// Some of the addresses that the Gateway asks for are missing; the message lists them.
        PartiallyAssigned = "PartiallyAssigned",
        /// Hosts have not reported yet; the message says which are awaited.
        Pending = "Pending",
        /// The port is not allowed (`spec.ports.allowed`), or hosts open it for another port of the Gateway (`spec.ports.map`, `spec.ports.offset`).
        PortUnavailable = "PortUnavailable",
        /// All is well.
        Programmed = "Programmed",
        /// Another listener has the port with a protocol that cannot share it.
        ProtocolConflict = "ProtocolConflict",
        /// No ReferenceGrant permits the reference to another namespace.
        RefNotPermitted = "RefNotPermitted",
        /// The fleet is no longer the controller's.
        Released = "Released",
        /// All is well.
        ResolvedRefs = "ResolvedRefs",
        /// All is well.
        SupportedVersion = "SupportedVersion",
        /// The target of the policy does not exist.
        TargetNotFound = "TargetNotFound",
        /// The routes of the hostname or of the namespace become more configuration than the limit; the youngest are left out.
        TooLarge = "TooLarge",
        /// The regular expressions of the hostname cost more than the limit; those of the youngest routes are left out.
        TooManyExpressions = "TooManyExpressions",
        /// The namespace has used up its share of the Gateway's listeners.
        TooManyListeners = "TooManyListeners",
        /// The type of the address is not supported.
        UnsupportedAddress = "UnsupportedAddress",
        /// The protocol of the listener or of the port of the Service is not supported there.
        UnsupportedProtocol = "UnsupportedProtocol",
        /// A field has a value that Sesame does not support. Or this version does not know the field, and its name or place
        /// says that it may protect something: what it is in is not served. The message says which.
        UnsupportedValue = "UnsupportedValue",
        /// The installed definitions are of a release that this version does not know.
        UnsupportedVersion = "UnsupportedVersion",
    }
}
