//! Defines the reasons for ignoring a host's report.

use std::fmt;

/// Maximum number of Gateways that one host may report on, which equals its maximum number of
/// addresses.
pub(super) const MAX_OF_HOST: usize = 256;

/// Reason for ignoring a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportRefusal {
    /// The host may not write an object with this name.
    Name,
    /// The host reports on too many Gateways.
    TooMany,
}

impl fmt::Display for ReportRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("its name does not match its Gateway and host"),
            Self::TooMany => write!(f, "its host reports about {MAX_OF_HOST} other Gateways"),
        }
    }
}
