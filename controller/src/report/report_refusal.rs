//! Defines the reasons for ignoring a host's report.

use thiserror::Error;

/// Maximum number of Gateways per host, equal to the maximum number of addresses.
pub(super) const MAX_PER_HOST: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum ReportRefusal {
    #[error("its name does not match its Gateway and host")]
    Name,
    #[error("its host already reports on {MAX_PER_HOST} other Gateways")]
    TooMany,
}
