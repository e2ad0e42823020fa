//! Kinds of traffic, which determine the backend protocol and the response if a backend is invalid.

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
    /// Returns the response status for requests to an invalid backend.
    pub(crate) fn refusal(self) -> u32 {
        match self {
            Self::Grpc => refusal::GRPC,
            Self::Http | Self::Connections | Self::Bytes | Self::Terminated | Self::Datagrams => {
                refusal::HTTP
            }
        }
    }

    /// Returns the value of a Service port's `protocol` field.
    pub(super) fn transport(self) -> &'static str {
        match self {
            Self::Http | Self::Grpc | Self::Connections | Self::Bytes | Self::Terminated => "TCP",
            Self::Datagrams => "UDP",
        }
    }

    /// Returns true if BackendTLSPolicies apply. They do not apply to TLS passthrough, where the
    /// client negotiates TLS with the backend.
    pub(super) fn supports_tls_policies(self) -> bool {
        match self {
            Self::Http | Self::Grpc | Self::Bytes | Self::Terminated => true,
            Self::Connections | Self::Datagrams => false,
        }
    }
}
