//! Defines the reasons for ignoring a host's report.

use std::fmt;

/// Maximum number of Gateways per host, equal to the maximum number of addresses.
pub(super) const MAX_PER_HOST: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportRefusal {
    /// The name does not match the Gateway and host in the report.
    Name,
    TooMany,
}

impl fmt::Display for ReportRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("its name does not match its Gateway and host"),
            Self::TooMany => write!(
                f,
                "its host already reports on {MAX_PER_HOST} other Gateways"
            ),
        }
    }
}
