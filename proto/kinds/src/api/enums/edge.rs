//! Enums used in `spec.edge` of a SesameConfiguration.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

open_enum! {
    /// `spec.edge.preset` in a SesameConfiguration.
    EdgePreset {
        /// Sesame's own defaults.
        Hardened = "Hardened",
        /// Handles clients like Contour.
        Contour = "Contour",
        /// Handles clients like ingress-nginx.
        Nginx = "Nginx",
    }
}

open_enum! {
    /// `spec.edge.otherUpgrades` in a SesameConfiguration.
    OtherUpgradesAction {
        /// Serves the request without the upgrade.
        Ignore = "Ignore",
        /// Responds with 403.
        Reject = "Reject",
    }
}

open_enum! {
    /// `spec.edge.http10` in a SesameConfiguration.
    Http10Action {
        Accept = "Accept",
        /// Responds with 426.
        Reject = "Reject",
    }
}

open_enum! {
    /// `spec.edge.headerCase` in a SesameConfiguration.
    HeaderCase {
        Lowercase = "Lowercase",
        /// Keeps the sender's case over HTTP/1.1.
        Preserve = "Preserve",
    }
}

open_enum! {
    /// `spec.edge.expectContinue` in a SesameConfiguration.
    ExpectContinueAction {
        /// Lets the backend answer.
        Forward = "Forward",
        /// Responds with 100 before the backend sees the request.
        Answer = "Answer",
    }
}

open_enum! {
    /// `spec.edge.trailingDots` in a SesameConfiguration.
    TrailingDotsAction {
        Remove = "Remove",
        /// Responds with 400.
        Reject = "Reject",
    }
}

open_enum! {
    /// `spec.edge.requestId` in a SesameConfiguration.
    RequestIdMode {
        /// Replaces clients' values.
        Generate = "Generate",
        /// Keeps clients' values, and generates missing ones.
        Keep = "Keep",
        /// Generates no values.
        Off = "Off",
    }
}

open_enum! {
    /// `spec.edge.serverHeader` in a SesameConfiguration.
    ServerHeaderMode {
        /// Forwards the backend's header.
        Keep = "Keep",
        /// Adds `envoy` to responses without the header.
        Add = "Add",
        /// Replaces the backend's header with `envoy`.
        Replace = "Replace",
    }
}

open_enum! {
    /// `spec.edge.viaHeader` in a SesameConfiguration.
    ViaHeaderMode {
        Omit = "Omit",
        /// Appends `1.1 sesame`.
        Append = "Append",
    }
}

open_enum! {
    /// `spec.edge.escapedSlashes` in a SesameConfiguration.
    EscapedSlashesAction {
        /// Redirects the client to the path with its slashes unescaped.
        Redirect = "Redirect",
        /// Responds with 400.
        Reject = "Reject",
        /// Unescapes slashes in the path before the request is routed and forwarded.
        Unescape = "Unescape",
        /// Leaves escaped slashes unchanged.
        Keep = "Keep",
    }
}

open_enum! {
    /// `spec.edge.repeatedSlashes` in a SesameConfiguration.
    RepeatedSlashesAction {
        Merge = "Merge",
        Keep = "Keep",
    }
}

open_enum! {
    /// `spec.edge.headerUnderscores` in a SesameConfiguration.
    UnderscoresAction {
        /// Responds with 400.
        Reject = "Reject",
        /// Removes the header and forwards the request.
        Drop = "Drop",
        Allow = "Allow",
    }
}

open_enum! {
    /// `spec.edge.proxyProtocol.mode` in a SesameConfiguration.
    ProxyProtocolMode {
        /// Closes connections that do not start with a PROXY protocol header.
        Required = "Required",
        /// Also serves connections without a header. Every client that can connect can then forge
        /// its address.
        Optional = "Optional",
        /// Accepts no header.
        Disabled = "Disabled",
    }
}

open_enum! {
    /// `spec.edge.http3.mode` in a SesameConfiguration.
    Http3Mode {
        /// Serves HTTPS listeners over HTTP/3 too.
        Enabled = "Enabled",
        /// Serves them only over TCP.
        Disabled = "Disabled",
    }
}

open_enum! {
    /// `spec.edge.forwardClientCertificate.mode` in a SesameConfiguration.
    ForwardedCertificateMode {
        /// Removes the header.
        Sanitize = "Sanitize",
        /// Replaces the header with details of the client's certificate.
        SanitizeSet = "SanitizeSet",
        /// Forwards the client's header unchanged.
        ForwardOnly = "ForwardOnly",
        /// Appends details of the client's certificate to the client's header.
        AppendForward = "AppendForward",
    }
}

open_enum! {
    /// Part of a client certificate in `x-forwarded-client-cert`.
    ClientCertificateDetail {
        Subject = "Subject",
        /// The certificate, as PEM.
        Cert = "Cert",
        /// The certificate chain, as PEM.
        Chain = "Chain",
        /// The subject alternative names of type DNS.
        Dns = "DNS",
        /// The subject alternative names of type URI.
        Uri = "URI",
    }
}
