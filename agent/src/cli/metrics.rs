//! Options for the `/metrics` listener. This module must not read the files that the options name.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use sesame_http_server::guard::GuardFiles;

use crate::run::MetricsOptions;

#[derive(Debug, Args)]
#[expect(
    clippy::struct_field_names,
    reason = "fields are named after command-line options"
)]
pub(super) struct MetricsArgs {
    /// Also serve /metrics at this address. Open to every client that can reach it, unless a token
    /// or client certificates are required.
    #[arg(long, env = "SESAME_METRICS_ADDRESS", value_name = "IP:PORT")]
    metrics_address: Option<SocketAddr>,
    /// Certificate chain (PEM) for TLS on the metrics address, reloaded on changes.
    #[arg(long, env = "SESAME_METRICS_CERTIFICATE", value_name = "FILE")]
    metrics_certificate: Option<PathBuf>,
    /// Private key (PEM) for the metrics certificate.
    #[arg(long, env = "SESAME_METRICS_KEY", value_name = "FILE")]
    metrics_key: Option<PathBuf>,
    /// CA certificates (PEM) for client certificates, which the metrics address then requires.
    #[arg(long, env = "SESAME_METRICS_CLIENT_CA", value_name = "FILE")]
    metrics_client_ca: Option<PathBuf>,
    /// File with the bearer token that metrics clients must present.
    #[arg(long, env = "SESAME_METRICS_TOKEN_FILE", value_name = "FILE")]
    metrics_token_file: Option<PathBuf>,
    /// Number of backends per Gateway with separate metrics, busiest first; all others are combined
    /// as `other`.
    #[arg(
        long,
        env = "SESAME_METRICS_BACKENDS",
        default_value_t = 40,
        value_parser = clap::value_parser!(u16).range(0..=5000),
        value_name = "NUMBER"
    )]
    metrics_backends: u16,
}

impl MetricsArgs {
    pub(super) fn options(self) -> MetricsOptions {
        let Self {
            metrics_address,
            metrics_certificate,
            metrics_key,
            metrics_client_ca,
            metrics_token_file,
            metrics_backends,
        } = self;
        MetricsOptions {
            address: metrics_address,
            guard: GuardFiles {
                certificate: metrics_certificate,
                key: metrics_key,
                client_ca: metrics_client_ca,
                token: metrics_token_file,
            },
            most_backends: metrics_backends.into(),
        }
    }
}
