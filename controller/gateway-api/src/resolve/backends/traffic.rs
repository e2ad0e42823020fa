//! Kinds of traffic. They determine the protocol to the backend, and the response if it is invalid.

use sesame_proto::refusal;

/// Traffic from a route to its backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Traffic {
    /// From HTTPRoutes.
    Http,
    /// From GRPCRoutes.
    Grpc,
    /// From TLSRoutes on listeners in Passthrough mode.
    Connections,
    /// From TCPRoutes, over TLS if a policy requires it.
    Bytes,
    /// From TLSRoutes on terminating listeners, over TLS if a policy requires it.
    Terminated,
    /// From UDPRoutes.
    Datagrams,
}

impl Traffic {
    /// Status for requests whose backend is invalid.
    pub(crate) fn refusal(self) -> u32 {
        match self {
            Self::Grpc => refusal::GRPC,
            Self::Http | Self::Connections | Self::Bytes | Self::Terminated | Self::Datagrams => {
                refusal::HTTP
            }
        }
    }

    /// As in the `protocol` field of Service ports.
    pub(super) fn transport(self) -> &'static str {
        match self {
            Self::Http | Self::Grpc | Self::Connections | Self::Bytes | Self::Terminated => "TCP",
            Self::Datagrams => "UDP",
        }
    }

    /// BackendTLSPolicies do not apply to passed-through TLS, which the client negotiates itself.
    pub(super) fn heeds_policies(self) -> bool {
        match self {
            Self::Http | Self::Grpc | Self::Bytes | Self::Terminated => true,
            Self::Connections | Self::Datagrams => false,
        }
    }
}
