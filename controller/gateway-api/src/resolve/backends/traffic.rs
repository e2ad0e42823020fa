//! Kinds of traffic. The kind determines the protocol to the backend, and the response to requests
//! whose backend is invalid.

use sesame_proto::refusal;

/// The kind of traffic that a route sends to its backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Traffic {
    /// Requests routed by HTTPRoutes.
    Http,
    /// Requests routed by GRPCRoutes.
    Grpc,
    /// Connections that a listener in Passthrough mode routes by TLSRoutes.
    Connections,
    /// Connections routed by TCPRoutes. Their bytes are sent over TLS if a policy requires it.
    Bytes,
    /// Connections that a TLS-terminating listener routes by TLSRoutes. Their bytes are sent over
    /// TLS if a policy requires it.
    Terminated,
    /// Datagrams routed by UDPRoutes.
    Datagrams,
}

impl Traffic {
    /// Returns the response status for requests whose backend is invalid.
    pub(crate) fn refusal(self) -> u32 {
        match self {
            Self::Grpc => refusal::GRPC,
            Self::Http | Self::Connections | Self::Bytes | Self::Terminated | Self::Datagrams => {
                refusal::HTTP
            }
        }
    }

    /// Returns the transport, in the notation of a Service port's `protocol` field.
    pub(super) fn transport(self) -> &'static str {
        match self {
            Self::Http | Self::Grpc | Self::Connections | Self::Bytes | Self::Terminated => "TCP",
            Self::Datagrams => "UDP",
        }
    }

    /// Returns true if BackendTLSPolicies apply to this traffic. They do not apply to
    /// passed-through TLS, which the client negotiates itself.
    pub(super) fn heeds_policies(self) -> bool {
        match self {
            Self::Http | Self::Grpc | Self::Bytes | Self::Terminated => true,
            Self::Connections | Self::Datagrams => false,
        }
    }
}
