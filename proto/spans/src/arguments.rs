//! Arguments that configure the span exporter.

use std::path::PathBuf;

use clap::Args;

use crate::collector::{CollectorError, CollectorSettings};

/// Arguments shared by the controller and the agent.
#[derive(Debug, Default, Args)]
#[expect(
    clippy::struct_field_names,
    reason = "fields are named after command-line options"
)]
pub struct SpanArgs {
    /// OpenTelemetry collector (OTLP over HTTP) that receives spans of each configuration change,
    /// such as `http://collector.example.com:4318`; the default path is /v1/traces. By default, no
    /// spans are sent.
    #[arg(long, env = "SESAME_SPANS_ENDPOINT", value_name = "URL")]
    spans_endpoint: Option<String>,
    /// CA certificates (PEM) for verifying the collector; required with https.
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
