//! Reasons why the report of a host counts for nothing.

use std::fmt;

/// Number of Gateways that one host may report about: as many as it may have addresses for.
pub(super) const MAX_OF_HOST: usize = 256;

/// Reason why a report counts for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportRefusal {
    /// The host may not write an object of this name.
    Name,
    /// The host reports about too many Gateways.
    TooMany,
}

impl fmt::Display for ReportRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("its name does not follow from its Gateway and its host"),
            Self::TooMany => write!(f, "its host reports about {MAX_OF_HOST} other Gateways"),
        }
    }
}
