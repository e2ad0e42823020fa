//! Traffic types: the protocol to the backend, and the response if a backend is invalid.

use sesame_proto::refusal;

/// The type of traffic that a route sends to its backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Traffic {
    /// Requests of HTTPRoutes.
    Http,
    /// Requests of GRPCRoutes.
    Grpc,
    /// Connections of TLSRoutes where TLS is passed through.
    Connections,
    /// Connections of TCPRoutes: raw bytes, over TLS if a policy requires it.
    Bytes,
    /// Connections of TLSRoutes whose listener terminates TLS. A policy determines whether TLS is
    /// used to the backend.
    Terminated,
    /// Datagrams of UDPRoutes.
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

    /// Returns the transport protocol in the notation of Services.
    pub(super) fn transport(self) -> &'static str {
        match self {
            Self::Http | Self::Grpc | Self::Connections | Self::Bytes | Self::Terminated => "TCP",
            Self::Datagrams => "UDP",
        }
    }

    /// Returns true if BackendTLSPolicies apply. TLS that is passed through belongs to the client.
    pub(super) fn heeds_policies(self) -> bool {
        match self {
            Self::Http | Self::Grpc | Self::Bytes | Self::Terminated => true,
            Self::Connections | Self::Datagrams => false,
        }
    }
}
