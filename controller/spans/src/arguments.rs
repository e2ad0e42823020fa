//! Arguments that configure the span exporter.

use std::path::PathBuf;

use clap::Args;

use crate::collector::{CollectorError, CollectorSettings};

/// Arguments shared by the controller and the agent.
#[derive(Debug, Default, Args)]
#[expect(
    clippy::struct_field_names,
    reason = "the names of the options, as they are on the command line"
)]
pub struct SpanArgs {
    /// Send spans of each configuration change to the OpenTelemetry collector at this URL with OTLP
    /// over HTTP, such as `http://collector.example.com:4318`; a missing path becomes /v1/traces.
    /// Off by default.
    #[arg(long, env = "SESAME_SPANS_ENDPOINT", value_name = "URL")]
    spans_endpoint: Option<String>,
    /// CA certificates (PEM) to verify the collector with; required for an https endpoint.
    #[arg(long, env = "SESAME_SPANS_CA", value_name = "FILE")]
    spans_ca: Option<PathBuf>,
    /// File with headers for the collector, such as an API key: one `name: value` per line, mode
    /// 0600; reloaded on changes.
    #[arg(long, env = "SESAME_SPANS_HEADERS_FILE", value_name = "FILE")]
    spans_headers_file: Option<PathBuf>,
}

impl SpanArgs {
    /// Returns the settings, or `None` if spans are disabled.
    pub fn settings(self) -> Result<Option<CollectorSettings>, CollectorError> {
        let Self {
            spans_endpoint,
            spans_ca,
            spans_headers_file,
        } = self;
        match spans_endpoint {
            Some(endpoint) => {
                CollectorSettings::new(&endpoint, spans_ca, spans_headers_file).map(Some)
            }
            None if spans_ca.is_some() => Err(CollectorError::NoEndpoint("--spans-ca")),
            None if spans_headers_file.is_some() => {
                Err(CollectorError::NoEndpoint("--spans-headers-file"))
            }
            None => Ok(None),
        }
    }
}
