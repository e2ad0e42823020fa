//! Conditions and their vocabulary. Call sites name a type and a reason, never a string.

use std::fmt;

use serde::{Serialize, Serializer};

/// A condition without its time, which is set when it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The aspect that is judged.
    #[serde(rename = "type")]
    pub type_: ConditionType,
    /// The judgement.
    pub status: ConditionStatus,
    /// The reason, for programs.
    pub reason: Reason,
    /// The reason, for people: names the field, the value, what was expected and what to do.
    pub message: String,
    /// The generation of the object that was judged; 0 where no cluster counts it.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "the API's own words")]
        pub enum $name { $($variant,)+ }

        impl $name {
            /// Returns the word as the API writes it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Returns the word with this text; none if it is not one of ours.
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
        True = "True",
        False = "False",
        Unknown = "Unknown",
    }
}

words! {
    /// The aspect that a condition judges, in the order in which the conditions of an object are listed.
    ConditionType {
        Accepted = "Accepted",
        Programmed = "Programmed",
        ResolvedRefs = "ResolvedRefs",
        Conflicted = "Conflicted",
        OverlappingTlsConfig = "OverlappingTLSConfig",
        PartiallyInvalid = "PartiallyInvalid",
        InsecureFrontendValidationMode = "InsecureFrontendValidationMode",
        AddressesAssigned = "AddressesAssigned",
        SupportedVersion = "SupportedVersion",
        CertificatesValid = "projectsesame.io/CertificatesValid",
        CertificatesShown = "projectsesame.io/CertificatesShown",
        GatewayService = "projectsesame.io/Service",
        GatewayFleet = "projectsesame.io/Fleet",
        FleetReleased = "projectsesame.io/Released",
        Displaced = "projectsesame.io/Displaced",
        Meshed = "projectsesame.io/Meshed",
    }
}

words! {
    /// The reason for the status of a condition.
    Reason {
        Accepted = "Accepted",
        AddressNotAssigned = "AddressNotAssigned",
        AddressNotUsable = "AddressNotUsable",
        BackendNotFound = "BackendNotFound",
        CertificateExpired = "CertificateExpired",
        CertificateExpiresSoon = "CertificateExpiresSoon",
        CertificateNotShown = "CertificateNotShown",
        CertificateNotYetValid = "CertificateNotYetValid",
        ConfigurationChanged = "ConfigurationChanged",
        Conflicted = "Conflicted",
        FleetIncomplete = "FleetIncomplete",
        HostnameConflict = "HostnameConflict",
        HostnameTaken = "HostnameTaken",
        IncompatibleFilters = "IncompatibleFilters",
        Invalid = "Invalid",
        InvalidCaCertificateKind = "InvalidCACertificateKind",
        InvalidCaCertificateRef = "InvalidCACertificateRef",
        InvalidCertificateRef = "InvalidCertificateRef",
        InvalidClientCertificateRef = "InvalidClientCertificateRef",
        InvalidKind = "InvalidKind",
        InvalidListenerFilter = "InvalidListenerFilter",
        InvalidListenerFilterRef = "InvalidListenerFilterRef",
        InvalidParameters = "InvalidParameters",
        InvalidRouteKinds = "InvalidRouteKinds",
        InvalidTrustBundle = "InvalidTrustBundle",
        ListenersNotResolved = "ListenersNotResolved",
        ListenersNotValid = "ListenersNotValid",
        Meshed = "Meshed",
        NameTaken = "NameTaken",
        NoConflicts = "NoConflicts",
        NoMatchingListenerHostname = "NoMatchingListenerHostname",
        NoMatchingParent = "NoMatchingParent",
        NoValidCaCertificate = "NoValidCACertificate",
        NotAllowed = "NotAllowed",
        NotAllowedByListeners = "NotAllowedByListeners",
        NotAssigned = "NotAssigned",
        OlderGatewayExists = "OlderGatewayExists",
        OtherRoute = "OtherRoute",
        OverlappingHostnames = "OverlappingHostnames",
        ParentNotAccepted = "ParentNotAccepted",
        ParentNotProgrammed = "ParentNotProgrammed",
        PartiallyAssigned = "PartiallyAssigned",
        Pending = "Pending",
        PortUnavailable = "PortUnavailable",
        Programmed = "Programmed",
        ProtocolConflict = "ProtocolConflict",
        RefNotPermitted = "RefNotPermitted",
        Released = "Released",
        ResolvedRefs = "ResolvedRefs",
        SupportedVersion = "SupportedVersion",
        TargetNotFound = "TargetNotFound",
        TooManyExpressions = "TooManyExpressions",
        TooManyListeners = "TooManyListeners",
        UnsupportedAddress = "UnsupportedAddress",
        UnsupportedProtocol = "UnsupportedProtocol",
        UnsupportedValue = "UnsupportedValue",
        UnsupportedVersion = "UnsupportedVersion",
    }
}
