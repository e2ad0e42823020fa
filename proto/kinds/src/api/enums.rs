//! Open enums, which keep unknown values as strings.
//!
//! Objects with unknown values can still be decoded. Resolution then reports the value, for example
//! with reason `UnsupportedValue`.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Enum that keeps unknown values as strings.
pub trait OpenEnum {
    /// Returns the value and all known values, if the value is unknown.
    fn unknown(&self) -> Option<(&str, &'static [&'static str])>;
}

/// Declares an enum whose variants are strings in the API, with a variant `Other(String)` for
/// unknown values.
macro_rules! open_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vdoc])* #[doc = concat!("`", $text, "`")] $variant,)+
            /// An unknown value, unchanged.
            Other(String),
        }

        impl $name {
            /// All known values.
            pub const WORDS: &'static [&'static str] = &[$($text),+];

            /// Returns the value as spelled in the API.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl $crate::api::OpenEnum for $name {
            fn unknown(&self) -> Option<(&str, &'static [&'static str])> {
                match self {
                    Self::Other(text) => Some((text, Self::WORDS)),
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "enum": [$($text),+] })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl de::Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("one of ")?;
                        f.write_str(&[$($text),+].join(", "))
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        Ok($name::from(text))
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }
    };
}
pub(super) use open_enum;

open_enum! {
    /// `Listener.protocol`.
    Protocol {
        Http = "HTTP",
        Https = "HTTPS",
        Tls = "TLS",
        Tcp = "TCP",
        Udp = "UDP",
    }
}

open_enum! {
    /// `ListenerTLSConfig.mode`.
    TlsMode {
        Terminate = "Terminate",
        Passthrough = "Passthrough",
    }
}

open_enum! {
    /// `RouteNamespaces.from` and `ListenerNamespaces.from`.
    FromNamespaces {
        All = "All",
        Selector = "Selector",
        Same = "Same",
        None = "None",
    }
}

open_enum! {
    /// `HTTPPathMatch.type`.
    PathMatchType {
        Exact = "Exact",
        PathPrefix = "PathPrefix",
        RegularExpression = "RegularExpression",
    }
}

open_enum! {
    /// The type of a header, query parameter or gRPC method match.
    StringMatchType {
        Exact = "Exact",
        RegularExpression = "RegularExpression",
    }
}

open_enum! {
    /// Type of an `HTTPRoute` or `GRPCRoute` filter.
    FilterType {
        RequestHeaderModifier = "RequestHeaderModifier",
        ResponseHeaderModifier = "ResponseHeaderModifier",
        RequestMirror = "RequestMirror",
        RequestRedirect = "RequestRedirect",
        UrlRewrite = "URLRewrite",
        Cors = "CORS",
        ExternalAuth = "ExternalAuth",
        ExtensionRef = "ExtensionRef",
    }
}

open_enum! {
    /// `HTTPPathModifier.type`.
    PathModifierType {
        ReplaceFullPath = "ReplaceFullPath",
        ReplacePrefixMatch = "ReplacePrefixMatch",
    }
}

open_enum! {
    /// `GatewaySpecAddress.type` and `GatewayStatusAddress.type`.
    AddressType {
        IpAddress = "IPAddress",
        Hostname = "Hostname",
        NamedAddress = "NamedAddress",
    }
}

open_enum! {
    /// `FrontendTLSValidation.mode`.
    FrontendValidationMode {
        AllowValidOnly = "AllowValidOnly",
        AllowInsecureFallback = "AllowInsecureFallback",
    }
}

open_enum! {
    /// `BackendTLSPolicyValidation.wellKnownCACertificates`.
    WellKnownCaCertificates {
        System = "System",
    }
}

open_enum! {
    /// `SubjectAltName.type`.
    SubjectAltNameType {
        Hostname = "Hostname",
        Uri = "URI",
    }
}

open_enum! {
    /// `TracingConfig.mode`.
    TracingMode {
        /// Spans are recorded.
        Enabled = "Enabled",
        /// No spans are recorded.
        Disabled = "Disabled",
        /// Other settings determine whether spans are recorded.
        ImplementationDefault = "ImplementationDefault",
    }
}

open_enum! {
    /// `ParentBasedSampling.mode`.
    ParentSamplingMode {
        /// The gateway follows the caller's sampling decision.
        Enabled = "Enabled",
        /// The gateway ignores the caller's sampling decision.
        Disabled = "Disabled",
        /// Same as `Enabled`.
        ImplementationDefault = "ImplementationDefault",
    }
}

open_enum! {
    /// `Attribute.sourceType`.
    AttributeSourceType {
        /// A request header.
        Header = "Header",
        /// A constant string.
        Literal = "Literal",
        /// A request property, identified by its OpenTelemetry attribute name.
        Attribute = "Attribute",
    }
}

open_enum! {
    /// `spec.gateway.mode` in a SesameConfiguration.
    SelectionMode {
        /// Serves all Gateways of the controller's classes.
        Multiple = "Multiple",
        /// Serves only the oldest Gateway of the oldest class.
        Single = "Single",
    }
}

open_enum! {
    /// `spec.publishing.type` in a SesameConfiguration.
    PublishingType {
        /// A DNS name that resolves to the hosts' own addresses.
        Headless = "Headless",
        /// A cluster-internal address.
        ClusterIp = "ClusterIP",
        /// A port on every node.
        NodePort = "NodePort",
        /// A load balancer's address.
        LoadBalancer = "LoadBalancer",
        /// The address of a second Gateway, of a different class, in front of this one.
        UpstreamGateway = "UpstreamGateway",
        /// No Service is created.
        None = "None",
    }
}

impl PublishingType {
    /// The Service types that open a port on every node.
    pub const ON_NODES: &[Self] = &[Self::NodePort, Self::LoadBalancer];
}

mod edge;
mod fleets;
mod policies;

pub use self::edge::*;
pub use self::fleets::*;
pub use self::policies::*;
