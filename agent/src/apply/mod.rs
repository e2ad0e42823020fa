//! Transactions that deliver rendered resources to Envoy as files. If Envoy rejects a step, the
//! whole transaction is rolled back.
//!
//! Never leave a file on disk that Envoy rejected. Never write a file that Envoy watches except by
//! rename.

mod ahead;
mod confirm;
mod filters;
mod journal;
mod on_disk;
pub mod plan;
mod removal;
mod report;
mod request;
mod rollback;
mod serials;
mod shown_endpoints;
pub mod state;
mod transaction;
mod wait;

pub use ahead::{PendingChanges, endpoints_ahead, route_tables_ahead};
pub use on_disk::OnDisk;
pub use removal::Removal;
pub use report::{ApplyReport, Outcome, Refusal, StepReport};
pub use request::{ApplyError, Desired, Opened};
pub use transaction::Applier;
pub use wait::Patience;
