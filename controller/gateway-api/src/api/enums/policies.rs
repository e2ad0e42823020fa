//! Enums in policies.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

open_enum! {
    /// Strategy of a `BackendPolicy`.
    #[derive(Default)]
    BalancerType {
        /// Each endpoint in turn.
        #[default]
        RoundRobin = "RoundRobin",
        /// Of two random endpoints, the one with fewer requests.
        LeastRequest = "LeastRequest",
        Random = "Random",
        /// By a hash of the request; endpoint changes move few requests.
        RingHash = "RingHash",
        /// By a hash of the request; faster than RingHash, but endpoint changes move more requests.
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
        /// The header `name`.
        Header = "Header",
        /// The cookie `name`.
        Cookie = "Cookie",
        /// The query parameter `name`.
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
        /// Responses of the gateway itself.
        Gateway = "Gateway",
        /// Responses of the gateway and of backends.
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
        /// Protocol of the request, for instance `HTTP/2`.
        Protocol = "Protocol",
        /// TLS version.
        TlsVersion = "TLSVersion",
        /// TLS cipher suite.
        TlsCipher = "TLSCipher",
        /// Subject of the client's certificate.
        ClientCertificateSubject = "ClientCertificateSubject",
        /// URIs in the client's certificate.
        ClientCertificateUri = "ClientCertificateURI",
        /// SHA-256 of the client's certificate, in hexadecimal.
        ClientCertificateFingerprint = "ClientCertificateFingerprint",
    }
}

open_enum! {
    /// Address that an `AccessPolicy` compares.
    AddressSource {
        /// The client address that trusted proxies report.
        Client = "Client",
        /// The peer address of the connection.
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
