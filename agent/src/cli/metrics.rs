//! Options for the `/metrics` listener. This module must not read the files that the options name.

use std::net::SocketAddr;

use clap::Args;
use sesame_http_server::guard::GuardFiles;

use sesame_engine::MetricsOptions;

#[derive(Debug, Args)]
pub(super) struct MetricsArgs {
    /// Also serve /metrics at this address. Open to every client that can reach it, unless a token
    /// or client certificates are required.
    #[arg(long, env = "SESAME_METRICS_ADDRESS", value_name = "IP:PORT")]
    metrics_address: Option<SocketAddr>,
    #[command(flatten)]
    guard: GuardFiles,
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
            guard,
            metrics_backends,
        } = self;
        MetricsOptions {
            address: metrics_address,
            guard,
            most_backends: metrics_backends.into(),
        }
    }
}
