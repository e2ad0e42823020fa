//! Reads the traffic of routes that Envoy counts separately. Adds up a route's counts from all of
//! its virtual hosts.

use std::fmt;

use super::counts::Durations;
use super::scrape::Scrape;
use super::traffic::bound;
use super::writer::{Families, SeriesLabels, count, gateway_labels, with};
use sesame_envoy::admin::Sample;

/// Envoy's and Sesame's label values for each status class.
const CLASSES: [(&str, &str); 5] = [
    ("1", "1xx"),
    ("2", "2xx"),
    ("3", "3xx"),
    ("4", "4xx"),
    ("5", "5xx"),
];

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RouteTraffic {
    /// In the order of [`CLASSES`].
    requests: [u64; CLASSES.len()],
    durations: Durations,
}

impl RouteTraffic {
    /// `name` is the suffix of Envoy's metric name.
    pub(super) fn record(&mut self, name: &str, sample: &Sample<'_>) {
        match name {
            "xx" => {
                let class = sample.label("envoy_response_code_class");
                let place = CLASSES.iter().position(|(digit, _)| class == Some(digit));
                if let Some(requests) = place.and_then(|place| self.requests.get_mut(place)) {
                    *requests += sample.count();
                }
            }
            "time_sum" => self.durations.sum += sample.value / 1000.0,
            "time_bucket" => {
                let Some(bound) = bound(sample) else {
                    return;
                };
                let count = sample.count();
                let buckets = &mut self.durations.buckets;
                match buckets
                    .iter_mut()
                    .find(|(known, _)| known.total_cmp(&bound).is_eq())
                {
                    Some((_, known)) => *known += count,
                    None => buckets.push((bound, count)),
                }
            }
            _ => {}
        }
    }

    /// Call this after adding the counts of all virtual hosts.
    pub(super) fn finish(&mut self) {
        self.durations.differences();
    }
}

impl Scrape {
    /// Writes counters even if they are zero, because rates would otherwise miss the first failure.
    pub(super) fn routes(&self, families: &mut Families<'_>) -> fmt::Result {
        let requests = self.measured().flat_map(|(labels, traffic)| {
            let by_class = CLASSES.iter().zip(traffic.requests);
            by_class.map(move |((_, class), counted)| {
                (with(labels.clone(), "code", class), count(counted))
            })
        });
        families.counter(
            "gateway_route_requests",
            "Requests to a route with metrics enabled, by status class of its backends' responses",
            requests,
        )?;
        let durations = self.measured();
        families.histogram(
            "gateway_route_backend_duration_seconds",
            "Time from the end of a request to a route with metrics enabled until the end of its backend's response",
            durations.map(|(labels, traffic)| (labels, &traffic.durations)),
        )
    }

    fn measured(&self) -> impl Iterator<Item = (SeriesLabels, &RouteTraffic)> {
        self.gateways.iter().flat_map(|(gateway, facts)| {
            let routes = facts.traffic.iter().flat_map(|traffic| &traffic.routes);
            routes.map(|(route, traffic)| (with(gateway_labels(gateway), "route", route), traffic))
        })
    }
}
