//! The metrics of backends by name. Must not choose which backends have series; the scrape holds
//! only these.

use std::fmt;

use super::backends::{BackendFamily, BackendTraffic, COUNTS};
use super::scrape::Scrape;
use super::writer::{Families, SeriesLabels, count, of_gateway};

impl Scrape {
    /// Writes the families of backends. All counters of a backend exist from the beginning, even at
    /// zero, because a counter that appears with its first failure is missing from every rate.
    pub(super) fn backends(&self, families: &mut Families<'_>) -> fmt::Result {
        families.counter(
            "gateway_backend_requests",
            "Answers of a backend, by the class of their status; each try of a request has one",
            self.counted_of(BackendFamily::Requests, "code"),
        )?;
        let active = self.backend_traffic();
        families.gauge(
            "gateway_backend_requests_active",
            "Requests that a backend has not answered yet",
            active.map(|(labels, traffic)| (labels, count(traffic.requests_active))),
        )?;
        let open = self.backend_traffic();
        families.gauge(
            "gateway_backend_connections_active",
            "Connections to a backend that are open",
            open.map(|(labels, traffic)| (labels, count(traffic.connections_active))),
        )?;
        families.counter(
            "gateway_backend_failures",
            "What failed on the way to a backend: connections that could not be made, requests that took too long, that it reset, that were too many, or for which it had no endpoint",
            self.counted_of(BackendFamily::Failures, "reason"),
        )?;
        families.counter(
            "gateway_backend_retries",
            "Requests that were sent to a backend once more",
            self.counted_of(BackendFamily::Retries, ""),
        )?;
        families.counter(
            "gateway_backend_sent_bytes",
            "Bytes that went to a backend",
            self.counted_of(BackendFamily::Sent, ""),
        )?;
        families.counter(
            "gateway_backend_received_bytes",
            "Bytes that came from a backend",
            self.counted_of(BackendFamily::Received, ""),
        )
    }

    fn backend_traffic(&self) -> impl Iterator<Item = (SeriesLabels, &BackendTraffic)> {
        self.gateways.iter().flat_map(|(gateway, facts)| {
            facts.backends.iter().map(|(backend, traffic)| {
                let mut labels = of_gateway(gateway);
                labels.push(("backend", backend.clone()));
                (labels, traffic)
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
