//! Tests for logs, metrics, traces and status pages.

mod access_logs;
mod access_reports;
mod change_spans;
mod log_receivers;
mod metrics;
mod monitoring;
mod status_page;
mod tracing;
mod what_happens;
