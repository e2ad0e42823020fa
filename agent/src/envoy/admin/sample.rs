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

pub(crate) struct Sample<'a> {
    pub(crate) name: &'a str,
    labels: &'a str,
    pub(crate) value: f64,
}

impl<'a> Sample<'a> {
    /// Parses `name{label="text",…} 1`. Returns `None` for all other lines.
    pub(crate) fn read(line: &'a str) -> Option<Self> {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{')?;
        Some(Self {
            name,
            labels: labels.strip_suffix('}')?,
            value: value.parse().ok()?,
        })
    }

    pub(crate) fn count(&self) -> u64 {
        whole(self.value)
    }

    pub(crate) fn label(&self, name: &str) -> Option<&'a str> {
        // Assumes that labels contain neither quotes nor commas, which holds for all labels used
        // here.
        let found = self.labels.split(',').find_map(|label| {
            let (found, value) = label.split_once('=')?;
            (found == name).then_some(value)
        });
        found?.strip_prefix('"')?.strip_suffix('"')
    }
}
