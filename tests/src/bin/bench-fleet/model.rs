//! Linear models of how a measurement depends on the number of hosts.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    fixed: f64,
    each: f64,
}

impl Line {
    /// Returns `None` for fewer than two sizes.
    pub(crate) fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.iter().map(|_| 1.0).sum::<f64>();
        let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        if spread <= 0.0 {
            return None;
        }
        let both = points.iter().map(|point| (point.0 - x) * (point.1 - y));
        let each = both.sum::<f64>() / spread;
        Some(Self {
            fixed: y - each * x,
            each,
        })
    }

    pub(crate) fn at(self, hosts: f64) -> f64 {
        self.fixed + self.each * hosts
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    pub(crate) line: Line,
    /// Relative error of `line` at the largest size.
    pub(crate) error: f64,
    /// Relative error at the largest size, for a line fitted to the smaller sizes.
    pub(crate) extrapolation_error: f64,
}

impl Model {
    /// `points` are sorted. Returns `None` for fewer than three sizes.
    pub(crate) fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let (largest, smaller) = points.split_last()?;
        let (line, foretold) = (Line::through(points)?, Line::through(smaller)?);
        let error = |line: Line| {
            let off = (line.at(largest.0) - largest.1).abs();
            off / largest.1.abs().max(f64::MIN_POSITIVE)
        };
        Some(Self {
            line,
            error: error(line),
            extrapolation_error: error(foretold),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_fits_line_and_reports_error_for_curve() {
        let straight = [
            (250.0, 35.0),
            (500.0, 60.0),
            (1000.0, 110.0),
            (2000.0, 210.0),
        ];
        let model = Model::fit(&straight).expect("four sizes");
        assert!(
            model.error.max(model.extrapolation_error) < 1e-9,
            "{model:?}"
        );
        assert!((model.line.at(10_000.0) - 1010.0).abs() < 1e-6, "{model:?}");
        let curved = straight.map(|(hosts, _)| (hosts, hosts * hosts));
        let model = Model::fit(&curved).expect("four sizes");
        assert!(model.extrapolation_error > 0.2, "{model:?}");
        assert!(model.error < model.extrapolation_error, "{model:?}");
        assert!(Model::fit(&straight[..2]).is_none());
    }
}
