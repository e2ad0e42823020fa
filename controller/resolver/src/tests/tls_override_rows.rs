//! Cases for certificate overrides, shared by the resolution tests and the tests with real
//! handshakes.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Override {
    pub(super) gateway: bool,
    pub(super) allowed: String,
    pub(super) hostname: String,
    pub(super) secret: Option<String>,
    pub(super) client: String,
    pub(super) shown: Option<String>,
}

pub(super) fn rows() -> Vec<Override> {
    serde_saphyr::from_str(include_str!("tls_overrides.yaml")).expect("a table")
}
