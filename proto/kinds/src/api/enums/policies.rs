//! Enums used in policies.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

open_enum! {
    /// Load balancing strategy of a `BackendPolicy`.
    #[derive(Default)]
    BalancerType {
        /// Uses each endpoint in turn.
        #[default]
        RoundRobin = "RoundRobin",
        /// Compares two random endpoints and picks whichever has fewer active requests.
        LeastRequest = "LeastRequest",
        Random = "Random",
        /// Picks an endpoint by a hash of the request. When endpoints change, few requests move to
        /// another endpoint.
        RingHash = "RingHash",
        /// Picks an endpoint by a hash of the request. Faster than `RingHash`, but more requests
        /// move when endpoints change.
        Maglev = "Maglev",
    }
}

open_enum! {
    /// Token that a login forwards.
    ForwardedToken {
        AccessToken = "AccessToken",
        /// The user's identity, which only the client should accept.
        IdToken = "IDToken",
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
    /// Part of a request that serves as a hash key.
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
    /// Part of a request that serves as a rate limit key.
    #[derive(Default)]
    LimitKeyType {
        /// The client's address.
        #[default]
        ClientAddress = "ClientAddress",
        /// The first value of the header `name`.
        Header = "Header",
        /// The first value of the cookie `name`.
        Cookie = "Cookie",
        /// The first decoded value of the query parameter `name`.
        QueryParameter = "QueryParameter",
        /// The normalized path, without the query.
        Path = "Path",
        /// The method. All methods that HTTPRoutes cannot match are counted together.
        Method = "Method",
    }
}

open_enum! {
    /// Which hosts share a rate limit.
    LimitScope {
        /// Each host has the whole limit.
        Host = "Host",
        /// The Gateway's hosts divide the limit.
        Fleet = "Fleet",
        /// A rate limit service decides.
        Service = "Service",
    }
}

open_enum! {
    /// What happens to requests beyond a rate limit.
    LimitMode {
        /// They are rejected.
        Enforce = "Enforce",
        /// They pass, and only metrics count them.
        Report = "Report",
    }
}

open_enum! {
    /// What happens to requests that an access policy would reject.
    AccessMode {
        /// They are rejected.
        Enforce = "Enforce",
        /// They pass, and only access logs and metrics show them.
        Report = "Report",
    }
}

open_enum! {
    /// Response headers that describe a rate limit.
    LimitHeaders {
        /// No headers.
        Off = "Off",
        /// `x-ratelimit-limit`, `x-ratelimit-remaining` and `x-ratelimit-reset`, as in
        /// draft-polli-ratelimit-headers-03.
        DraftVersion03 = "DraftVersion03",
    }
}

open_enum! {
    /// Rate limit period.
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
        /// Responses from both the gateway and backends.
        All = "All",
    }
}

open_enum! {
    /// Property of a request or its connection that a header can contain.
    HeaderFact {
        /// Client address.
        ClientAddress = "ClientAddress",
        /// Request ID, as in the header `x-request-id`.
        RequestId = "RequestID",
        /// HTTP version of the request, such as `HTTP/2`.
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
        /// The client's address, as reported by trusted proxies.
        Client = "Client",
        /// The address of the connection's peer, which may be a proxy.
        Peer = "Peer",
    }
}

open_enum! {
    /// Whether an `AccessPolicy` allows or denies a request.
    AccessAction {
        Allow = "Allow",
        Deny = "Deny",
    }
}

open_enum! {
    /// Type of a name in a client certificate.
    CertificateNameType {
        Dns = "DNS",
        Uri = "URI",
    }
}
