//! What this host reports to a cluster that it has its configuration from.

mod host_status;
mod reporter;

pub(super) use self::reporter::Reporter;
