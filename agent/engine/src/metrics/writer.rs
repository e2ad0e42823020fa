//! Generic helpers for writing metric families.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

use super::counts::Durations;

/// In output order.
pub(super) type SeriesLabels = Vec<(&'static str, String)>;

pub(super) struct Families<'e>(pub(super) DescriptorEncoder<'e>);

impl Families<'_> {
    fn begin<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }

    pub(super) fn single(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.begin(name, help, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    pub(super) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (SeriesLabels, f64)>,
    ) -> fmt::Result {
        let mut family = self.begin(name, help, MetricType::Gauge)?;
        for (labels, value) in values {
            one(&mut family, &labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    pub(super) fn counter(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (SeriesLabels, f64)>,
    ) -> fmt::Result {
        let mut family = self.begin(name, help, MetricType::Counter)?;
        for (labels, value) in values {
            let none: Option<&Exemplar<NoLabelSet, f64>> = None;
            one(&mut family, &labels)?.encode_counter(&value, none)?;
        }
        Ok(())
    }

    pub(super) fn histogram<'d>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (SeriesLabels, &'d Durations)>,
    ) -> fmt::Result {
        let mut family = self.begin(name, help, MetricType::Histogram)?;
        for (labels, durations) in values {
            durations.encode(one(&mut family, &labels)?)?;
        }
        Ok(())
    }
}

fn one<'e>(
    family: &'e mut MetricEncoder<'_>,
    labels: &'e impl EncodeLabelSet,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    family.encode_family(labels)
}

/// `name` is `namespace/name`.
pub(super) fn gateway_labels(name: &str) -> SeriesLabels {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    vec![
        ("gateway_namespace", namespace.to_owned()),
        ("gateway", name.to_owned()),
    ]
}

/// Appends a label.
pub(super) fn with(mut labels: SeriesLabels, name: &'static str, value: &str) -> SeriesLabels {
    labels.push((name, value.to_owned()));
    labels
}

pub(super) fn flag(set: bool) -> f64 {
    f64::from(u8::from(set))
}

pub(super) fn number(things: usize) -> f64 {
    count(things as u64)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts that occur in practice are exact in a double"
)]
pub(super) fn count(counted: u64) -> f64 {
    counted as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "seconds since 1970 are exact in a double"
)]
pub(super) fn seconds(since_1970: i64) -> f64 {
    since_1970 as f64
}
