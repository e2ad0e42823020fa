//! Kinds of traffic: protocol towards the backend, and the answer where a backend is invalid.

/// The kind of traffic that a route sends to its backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Traffic {
    /// Requests of HTTPRoutes.
    Http,
    /// Requests of GRPCRoutes.
    Grpc,
    /// Of TLSRoutes where TLS is passed through.
    Connections,
    /// Of TCPRoutes: the client's own bytes, over TLS where a policy says so.
    Bytes,
    /// Of TLSRoutes where TLS ends: to the backend, TLS is what a policy says.
    Terminated,
    /// Of UDPRoutes.
    Datagrams,
}

impl Traffic {
    /// The status of a request whose backend is invalid. A gRPC client reads 503 as UNAVAILABLE.
    pub(crate) fn refusal(self) -> u32 {
        match self {
            Self::Grpc => 503,
            Self::Http | Self::Connections | Self::Bytes | Self::Terminated | Self::Datagrams => {
                500
            }
        }
    }

    /// As Services name it.
    pub(super) fn transport(self) -> &'static str {
        match self {
            Self::Http | Self::Grpc | Self::Connections | Self::Bytes | Self::Terminated => "TCP",
            Self::Datagrams => "UDP",
        }
    }

    /// Returns true if a BackendTLSPolicy applies to it. TLS that is passed through is the client's own.
    pub(super) fn heeds_policies(self) -> bool {
        match self {
            Self::Http | Self::Grpc | Self::Bytes | Self::Terminated => true,
            Self::Connections | Self::Datagrams => false,
        }
    }
}
