//! Arguments that configure the address for `/metrics` and the status page.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use clap::Args;
use sesame_http_server::guard::GuardFiles;

use crate::run::MetricsAddress;

#[derive(Debug, Default, Args)]
pub(super) struct MetricsAddressArgs {
    /// Address for /metrics and the status page, instead of --listen. Open to every client that can
    /// reach it, unless a token or client certificates are required
    #[arg(long, env = "SESAME_METRICS_ADDRESS", value_name = "ADDRESS:PORT")]
    metrics_address: Option<SocketAddr>,
    #[command(flatten)]
    guard: GuardFiles,
}

impl MetricsAddressArgs {
    /// Returns `None` if metrics are served on the probe address, which has no access control.
    pub(super) fn address(self) -> Result<Option<MetricsAddress>> {
        let Self {
            metrics_address,
            guard,
        } = self;
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
            guard: GuardFiles {
                metrics_token_file: Some("token".into()),
                ..GuardFiles::default()
            },
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
