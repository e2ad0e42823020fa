//! Kinds of traffic: the protocol used to reach the backend, and the response if a backend is
//! invalid.

use sesame_proto::refusal;

/// The kind of traffic that a route sends to its backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Traffic {
    /// Requests routed by HTTPRoutes.
    Http,
    /// Requests routed by GRPCRoutes.
    Grpc,
    /// Connections routed by TLSRoutes that pass TLS through.
    Connections,
    /// Connections routed by TCPRoutes: raw bytes, over TLS if a policy requires it.
    Bytes,
    /// Connections routed by TLSRoutes on a listener that terminates TLS. A policy determines
    /// whether TLS is used to the backend.
    Terminated,
    /// Datagrams routed by UDPRoutes.
    Datagrams,
}

impl Traffic {
    /// Returns the response status for a request with an invalid backend.
    pub(crate) fn refusal(self) -> u32 {
        match self {
            Self::Grpc => refusal::GRPC,
            Self::Http | Self::Connections | Self::Bytes | Self::Terminated | Self::Datagrams => {
                refusal::HTTP
            }
        }
    }

    /// Returns the transport protocol, as in the `protocol` field of a Service port.
    pub(super) fn transport(self) -> &'static str {
        match self {
            Self::Http | Self::Grpc | Self::Connections | Self::Bytes | Self::Terminated => "TCP",
            Self::Datagrams => "UDP",
        }
    }

    /// Returns true if BackendTLSPolicies apply. They do not apply to passed-through TLS, which the
    /// client negotiates itself.
    pub(super) fn heeds_policies(self) -> bool {
        match self {
            Self::Http | Self::Grpc | Self::Bytes | Self::Terminated => true,
            Self::Connections | Self::Datagrams => false,
        }
    }
}
