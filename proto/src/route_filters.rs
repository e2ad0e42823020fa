//! Names and limits of shared filters that RouteFilters define.

use crate::schema::{GrpcJsonTranscoder, InjectedCredential, Maintenance, MaintenancePage};

impl InjectedCredential {
    const PART: &str = "/credentialInjection";
    /// Maximum size of a value in bytes.
    pub const MAX_BYTES: usize = 4096;

    /// Returns the name of a RouteFilter's shared filter and key pair. `filter` is
    /// `RouteFilter/namespace/name`.
    pub fn name(filter: &str) -> String {
        format!("{filter}{}", Self::PART)
    }

    /// Returns the RouteFilter in the name of a shared filter or key pair.
    pub fn filter(name: &str) -> Option<&str> {
        name.strip_suffix(Self::PART)
    }
}

impl GrpcJsonTranscoder {
    const PART: &str = "/grpcJSONTranscoding";
    /// Maximum size of a descriptor set in bytes.
    pub const MAX_BYTES: usize = 256 * 1024;
    /// Maximum number of services, and of ignored query parameters.
    pub const MAX_ENTRIES: usize = 64;
    /// Maximum length of a name in bytes.
    pub const MAX_NAME: usize = 256;

    /// Returns the name of a RouteFilter's shared filter. `filter` is `RouteFilter/namespace/name`.
    pub fn name(filter: &str) -> String {
        format!("{filter}{}", Self::PART)
    }

    /// Returns the RouteFilter in the name of a shared filter.
    pub fn filter(name: &str) -> Option<&str> {
        name.strip_suffix(Self::PART)
    }
}

impl MaintenancePage {
    const PART: &str = "/maintenance";

    /// Returns the name of a RouteFilter's shared filter. `filter` is `RouteFilter/namespace/name`.
    pub fn name(filter: &str) -> String {
        format!("{filter}{}", Self::PART)
    }
}

impl Maintenance {
    /// Returns the RouteFilter that defines the page.
    pub fn filter(&self) -> &str {
        let part = self.page.strip_suffix(MaintenancePage::PART);
        part.unwrap_or(&self.page)
    }
}
