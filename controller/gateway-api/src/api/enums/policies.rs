//! Enums in policies.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

open_enum! {
    /// Load balancing strategy of a `BackendPolicy`.
    #[derive(Default)]
    BalancerType {
        /// Requests go to each endpoint in turn.
        #[default]
        RoundRobin = "RoundRobin",
        /// Picks two random endpoints and uses the one with fewer active requests.
        LeastRequest = "LeastRequest",
        Random = "Random",
        /// Picks an endpoint by a hash of the request. If endpoints change, few requests move to
        /// another endpoint.
        RingHash = "RingHash",
        /// Picks an endpoint by a hash of the request. This is faster than RingHash, but more
        /// requests move if endpoints change.
        Maglev = "Maglev",
    }
}

open_enum! {
    /// Version of the PROXY protocol.
    ProxyProtocolVersion {
        V1 = "V1",
        V2 = "V2",
    }
}

open_enum! {
    /// Part of a request whose value is used as a key.
    #[derive(Default)]
    RequestKeyType {
        /// The client's address.
        #[default]
        ClientAddress = "ClientAddress",
        /// The value of the header `name`.
        Header = "Header",
        /// The value of the cookie `name`.
        Cookie = "Cookie",
        /// The value of the query parameter `name`.
        QueryParameter = "QueryParameter",
    }
}

open_enum! {
    /// Period of a rate limit.
    #[derive(Default)]
    LimitPeriod {
        #[default]
        Second = "Second",
        Minute = "Minute",
        Hour = "Hour",
        Day = "Day",
    }
}

open_enum! {
    /// Compression algorithm.
    #[derive(Default)]
    CompressionType {
        #[default]
        Gzip = "Gzip",
        Brotli = "Brotli",
        Zstd = "Zstd",
    }
}

open_enum! {
    /// Responses that error pages replace.
    ErrorPageSource {
        /// Only responses that the gateway itself generates.
        Gateway = "Gateway",
        /// Responses of the gateway and responses of backends.
        All = "All",
    }
}

open_enum! {
    /// Fact about a request or its connection.
    HeaderFact {
        /// Address of the client.
        ClientAddress = "ClientAddress",
        /// Identifier of the request, which is also in `x-request-id`.
        RequestId = "RequestID",
        /// HTTP version of the request, for instance `HTTP/2`.
        Protocol = "Protocol",
        /// TLS version of the connection.
        TlsVersion = "TLSVersion",
        /// TLS cipher suite of the connection.
        TlsCipher = "TLSCipher",
        /// Subject of the client's certificate.
        ClientCertificateSubject = "ClientCertificateSubject",
        /// URIs in the subject alternative names of the client's certificate.
        ClientCertificateUri = "ClientCertificateURI",
        /// SHA-256 digest of the client's certificate, in hexadecimal.
        ClientCertificateFingerprint = "ClientCertificateFingerprint",
    }
}

open_enum! {
    /// The address that an `AccessPolicy` compares with its networks.
    AddressSource {
        /// The client's address, as trusted proxies report it.
        Client = "Client",
        /// The address of the connection's peer, which may be a proxy.
        Peer = "Peer",
    }
}

open_enum! {
    /// Action on a request.
    AccessAction {
        Allow = "Allow",
        Deny = "Deny",
    }
}
