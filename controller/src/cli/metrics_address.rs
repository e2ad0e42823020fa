//! Arguments that configure the address for `/metrics` and the status page.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use sesame_http_server::guard::GuardFiles;

use crate::run::MetricsAddress;

#[derive(Debug, Default, Args)]
#[expect(
    clippy::struct_field_names,
    reason = "fields are named after command-line options"
)]
pub(super) struct MetricsAddressArgs {
    /// Address for /metrics and the status page, instead of --listen. Open to every client that can
    /// reach it, unless a token or client certificates are required
    #[arg(long, env = "SESAME_METRICS_ADDRESS", value_name = "ADDRESS:PORT")]
    metrics_address: Option<SocketAddr>,
    /// Certificate chain (PEM) for TLS on the metrics address, reloaded on changes
    #[arg(long, env = "SESAME_METRICS_CERTIFICATE", value_name = "FILE")]
    metrics_certificate: Option<PathBuf>,
    /// Private key (PEM) for the metrics certificate
    #[arg(long, env = "SESAME_METRICS_KEY", value_name = "FILE")]
    metrics_key: Option<PathBuf>,
    /// CA certificates (PEM) for client certificates, which the metrics address then requires
    #[arg(long, env = "SESAME_METRICS_CLIENT_CA", value_name = "FILE")]
    metrics_client_ca: Option<PathBuf>,
    /// File with the bearer token that metrics clients must present
    #[arg(long, env = "SESAME_METRICS_TOKEN_FILE", value_name = "FILE")]
    metrics_token_file: Option<PathBuf>,
}

impl MetricsAddressArgs {
    /// Returns `None` if metrics are served on the probe address, which has no access control.
    pub(super) fn address(self) -> Result<Option<MetricsAddress>> {
        let Self {
            metrics_address,
            metrics_certificate,
            metrics_key,
            metrics_client_ca,
            metrics_token_file,
        } = self;
        let guard = GuardFiles {
            certificate: metrics_certificate,
            key: metrics_key,
            client_ca: metrics_client_ca,
            token: metrics_token_file,
        };
        ensure!(
            metrics_address.is_some() || guard == GuardFiles::default(),
            "--metrics-certificate, --metrics-key, --metrics-client-ca and --metrics-token-file \
            require --metrics-address; --listen has no access control"
        );
        Ok(metrics_address.map(|address| MetricsAddress { address, guard }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_without_an_address_is_refused() {
        let none = MetricsAddressArgs::default;
        assert_eq!(none().address().expect("no address"), None);
        let guarded = MetricsAddressArgs {
            metrics_token_file: Some("token".into()),
            ..none()
        };
        let error = guarded
            .address()
            .expect_err("a token without an address is rejected");
        assert!(error.to_string().contains("--metrics-address"), "{error}");
        let metrics_address = "127.0.0.1:8082".parse().ok();
        let open = MetricsAddressArgs {
            metrics_address,
            ..none()
        };
        let address = open.address().expect("an address").expect("an address");
        assert_eq!(address.guard, GuardFiles::default());
    }
}
