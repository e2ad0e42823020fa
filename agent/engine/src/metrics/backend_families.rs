//! Writes the metrics of individual backends.

use std::fmt;

use super::backends::{BackendFamily, BackendTraffic, COUNTS};
use super::scrape::Scrape;
use super::writer::{Families, SeriesLabels, count, gateway_labels, with};

impl Scrape {
    /// Writes counters even if they are zero, because rates would otherwise miss the first failure.
    pub(super) fn backends(&self, families: &mut Families<'_>) -> fmt::Result {
        families.counter(
            "gateway_backend_requests",
            "Responses from a backend, by status class; each attempt of a request counts",
            self.counted_of(BackendFamily::Requests, "code"),
        )?;
        let active = self.backend_traffic();
        families.gauge(
            "gateway_backend_requests_active",
            "Requests in progress at a backend",
            active.map(|(labels, traffic)| (labels, count(traffic.requests_active))),
        )?;
        let open = self.backend_traffic();
        families.gauge(
            "gateway_backend_connections_active",
            "Open connections to a backend",
            open.map(|(labels, traffic)| (labels, count(traffic.connections_active))),
        )?;
        families.counter(
            "gateway_backend_failures",
            "Failures on the way to a backend: failed connections, and requests that timed out, were reset, exceeded a limit or found no endpoint",
            self.counted_of(BackendFamily::Failures, "reason"),
        )?;
        families.counter(
            "gateway_backend_retries",
            "Requests that were retried at a backend",
            self.counted_of(BackendFamily::Retries, ""),
        )?;
        families.counter(
            "gateway_backend_sent_bytes",
            "Bytes sent to a backend",
            self.counted_of(BackendFamily::Sent, ""),
        )?;
        families.counter(
            "gateway_backend_received_bytes",
            "Bytes received from a backend",
            self.counted_of(BackendFamily::Received, ""),
        )
    }

    fn backend_traffic(&self) -> impl Iterator<Item = (SeriesLabels, &BackendTraffic)> {
        self.gateways.iter().flat_map(|(gateway, facts)| {
            facts.backends.iter().map(|(backend, traffic)| {
                (with(gateway_labels(gateway), "backend", backend), traffic)
            })
        })
    }

    fn counted_of(
        &self,
        wanted: BackendFamily,
        label: &'static str,
    ) -> impl Iterator<Item = (SeriesLabels, f64)> {
        self.backend_traffic().flat_map(move |(labels, traffic)| {
            let counted = COUNTS.iter().zip(traffic.counts);
            counted
                .filter(move |((family, ..), _)| *family == wanted)
                .map(move |((_, value, _), counted)| {
                    let mut labels = labels.clone();
                    if !label.is_empty() {
                        labels.push((label, (*value).to_owned()));
                    }
                    (labels, count(counted))
                })
        })
    }
}
