//! Open enums: known values, and unknown values as strings.
//!
//! An unknown value never makes an object undecodable; resolution reports it as `UnsupportedValue`
//! or similar.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Declares an enum over strings with an `Other(String)` variant for unknown values.
macro_rules! open_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vdoc])* #[doc = concat!("`", $text, "`")] $variant,)+
            /// An unknown value, as written.
            Other(String),
        }

        impl $name {
            /// The known values.
            pub const WORDS: &'static [&'static str] = &[$($text),+];

            /// Returns the value as the API writes it.
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
    /// The type of a filter of an `HTTPRoute` or `GRPCRoute`.
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
        /// Other settings decide.
        ImplementationDefault = "ImplementationDefault",
    }
}

open_enum! {
    /// `ParentBasedSampling.mode`.
    ParentSamplingMode {
        /// The caller's decision is followed.
        Enabled = "Enabled",
        /// The caller's decision is ignored.
        Disabled = "Disabled",
        /// Same as `Enabled`.
        ImplementationDefault = "ImplementationDefault",
    }
}

open_enum! {
    /// `Attribute.sourceType`.
    AttributeSourceType {
        /// A header of the request.
        Header = "Header",
        /// A constant string.
        Literal = "Literal",
        /// A value known to the proxy, by its OpenTelemetry name.
        Attribute = "Attribute",
    }
}

open_enum! {
    /// `spec.gateway.mode` of a SesameConfiguration.
    SelectionMode {
        /// All Gateways of all classes of the controller.
        Multiple = "Multiple",
        /// Only the oldest Gateway of the oldest class.
        Single = "Single",
    }
}

open_enum! {
    /// `spec.publishing.type` of a SesameConfiguration.
    PublishingType {
        /// A name that resolves to the hosts' own addresses.
        Headless = "Headless",
        /// An address inside the cluster.
        ClusterIp = "ClusterIP",
        /// A port on every node.
        NodePort = "NodePort",
        /// An address of a load balancer.
        LoadBalancer = "LoadBalancer",
        /// An address of a second Gateway, whose class differs.
        UpstreamGateway = "UpstreamGateway",
        /// No Service.
        None = "None",
    }
}

open_enum! {
    /// `spec.fleet.management` of a SesameConfiguration.
    FleetManagement {
        /// The controller manages agents and Envoys for the Gateway.
        Managed = "Managed",
        /// Agents and Envoys run in the cluster, but Sesame does not manage them.
        Unmanaged = "Unmanaged",
        /// Agents and Envoys run on hosts outside the cluster.
        External = "External",
    }
}

open_enum! {
    /// `spec.fleet.gateways` of a SesameConfiguration.
    FleetGateways {
        /// Each Gateway has its dedicated Envoys.
        Isolated = "Isolated",
        /// All Gateways of a class are served by the same Envoys.
        Merged = "Merged",
        /// Only the oldest Gateway of each class is served.
        Single = "Single",
    }
}

open_enum! {
    /// `spec.fleet.workload` of a SesameConfiguration.
    FleetWorkload {
        /// One Pod on each node, on the node's network.
        DaemonSet = "DaemonSet",
        /// Several Pods on the Pod network.
        Deployment = "Deployment",
    }
}

open_enum! {
    /// `Container.imagePullPolicy`.
    ImagePullPolicy {
        Always = "Always",
        IfNotPresent = "IfNotPresent",
        Never = "Never",
    }
}

open_enum! {
    /// `Toleration.operator`.
    TolerationOperator {
        Exists = "Exists",
        Equal = "Equal",
    }
}

open_enum! {
    /// `Taint.effect`.
    TaintEffect {
        NoSchedule = "NoSchedule",
        PreferNoSchedule = "PreferNoSchedule",
        NoExecute = "NoExecute",
    }
}

open_enum! {
    /// `ServiceSpec.externalTrafficPolicy`, and `internalTrafficPolicy`.
    ServiceTraffic {
        /// Any endpoint.
        Cluster = "Cluster",
        /// Only endpoints on the node where the traffic arrives.
        Local = "Local",
    }
}

open_enum! {
    /// `ServiceSpec.sessionAffinity`.
    SessionAffinity {
        /// Requests from the same client address go to the same endpoint.
        ClientIp = "ClientIP",
        None = "None",
    }
}

open_enum! {
    /// `ServiceSpec.ipFamilyPolicy`.
    IpFamilyPolicy {
        SingleStack = "SingleStack",
        PreferDualStack = "PreferDualStack",
        RequireDualStack = "RequireDualStack",
    }
}

open_enum! {
    /// An entry of `ServiceSpec.ipFamilies`.
    IpFamily {
        Ipv4 = "IPv4",
        Ipv6 = "IPv6",
    }
}

open_enum! {
    /// `spec.edge.escapedSlashes` of a SesameConfiguration.
    EscapedSlashesAction {
        /// Redirects the client to the path with unescaped slashes.
        Redirect = "Redirect",
        /// Responds with 400.
        Reject = "Reject",
        /// Unescapes slashes before routing and forwarding.
        Unescape = "Unescape",
        /// Keeps escaped slashes.
        Keep = "Keep",
    }
}

open_enum! {
    /// `spec.edge.repeatedSlashes` of a SesameConfiguration.
    RepeatedSlashesAction {
        Merge = "Merge",
        Keep = "Keep",
    }
}

open_enum! {
    /// `spec.edge.headerUnderscores` of a SesameConfiguration.
    UnderscoresAction {
        /// Responds with 400.
        Reject = "Reject",
        /// Forwards the request without the header.
        Drop = "Drop",
        Allow = "Allow",
    }
}

impl PublishingType {
    /// Types whose Services have a port on each node.
    pub const ON_NODES: &[Self] = &[Self::NodePort, Self::LoadBalancer];
}

mod policies;

pub use self::policies::*;
