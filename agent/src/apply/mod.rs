//! Transactions that bring rendered resources to Envoy: files by rename, in an order that drops nothing, verified and undone
//! when Envoy refuses.
//!
//! `plan` decides (pure), `removal` when what nothing uses goes (pure), `ahead` picks what need not wait for the rest (pure), `journal` writes and remembers what was there,
//! `transaction` runs one against the other and proves each step by what Envoy reports. `state` keeps what was accepted for a start
//! with nothing else alive. Nothing here ever leaves a file on disk that Envoy refused, and nothing writes an Envoy file except by
//! rename.

mod ahead;
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

pub use ahead::{Waiting, endpoints_ahead, route_tables_ahead};
pub use on_disk::OnDisk;
pub use removal::Removal;
pub use report::{ApplyReport, Outcome, Refusal, StepReport};
pub use request::{ApplyError, Desired, Opened};
pub use transaction::Applier;
pub use wait::Patience;
