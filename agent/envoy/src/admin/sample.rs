//! Parses statistics in the Prometheus text format.
//!
//! Skips unknown lines, and never mistakes one sample for another.

/// Envoy's counters have no fractional part.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and counts are non-negative integers"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

/// One sample of a metric.
pub struct Sample<'a> {
    /// Name of the metric, such as `envoy_http_rds_version_text`.
    pub name: &'a str,
    labels: &'a str,
    /// Value of the sample. May be NaN or infinite.
    pub value: f64,
}

impl<'a> Sample<'a> {
    /// Parses `name{label="text",…} 1`. Returns `None` for all other lines.
    pub fn read(line: &'a str) -> Option<Self> {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{')?;
        Some(Self {
            name,
            labels: labels.strip_suffix('}')?,
            value: value.parse().ok()?,
        })
    }

    /// Returns the value without its fraction, or 0 if it is negative or NaN.
    pub fn count(&self) -> u64 {
        whole(self.value)
    }

    /// Returns the label's value without quotes, or `None` if the sample lacks the label.
    pub fn label(&self, name: &str) -> Option<&'a str> {
        // Assumes that labels contain neither quotes nor commas, which holds for all labels used
        // here.
        let found = self.labels.split(',').find_map(|label| {
            let (found, value) = label.split_once('=')?;
            (found == name).then_some(value)
        });
        found?.strip_prefix('"')?.strip_suffix('"')
    }
}
