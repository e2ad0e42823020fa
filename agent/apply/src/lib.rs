//! Transactions that deliver rendered resources to Envoy as files. If Envoy rejects a step, the
//! whole transaction is rolled back.
//!
//! Never leave a file on disk that Envoy rejected. Never write a file that Envoy watches except by
//! rename.
//!
//! ```
//! use envoy_types::pb::envoy::config::listener::v3::Listener;
//! use prost::Message as _;
//! use sesame_apply::{Applier, ApplyError, Desired, Outcome};
//! use sesame_envoy::log::EnvoyLog;
//! use sesame_render::{Rendered, Resource, layout::XdsLayout};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path();
//! let layout = XdsLayout::new(directory.join("xds"));
//! let log = EnvoyLog::new(directory.join("envoy.log"));
//! // `None`: no Envoy is running, so the files are written in order but never acknowledged.
//! let (mut applier, _) = Applier::open(layout.clone(), log, None).await?;
//!
//! let name = "tcp/127.0.0.1/80".to_owned();
//! let bytes = Listener { name: name.clone(), ..Listener::default() }.encode_to_vec().into();
//! let rendered = Rendered { listeners: [Resource { name, bytes }].into(), ..Rendered::default() };
//! let serials = Default::default();
//! let desired = Desired { rendered: &rendered, serials: &serials, may_empty: false };
//! assert_eq!(applier.apply(desired, None).await?.outcome, Outcome::NotRunning);
//! assert!(layout.lds().is_file());
//!
//! let desired = Desired { rendered: &Rendered::default(), ..desired };
//! let refused = applier.apply(desired, None).await;
//! assert!(matches!(refused, Err(ApplyError::Empties { count: 1 })));
//! # Ok(())
//! # }
//! ```

#![cfg_attr(test, allow(clippy::too_many_lines))]

mod ahead;
mod confirm;
mod filters;
mod forecast;
mod journal;
mod on_disk;
pub mod plan;
pub mod publish;
pub mod quarantine;
mod removal;
mod report;
mod request;
mod rollback;
mod serials;
mod shown_endpoints;
pub mod state;
pub mod tickets;
mod transaction;
mod wait;

pub use ahead::{PendingChanges, endpoints_ahead, route_tables_ahead};
pub use forecast::Forecast;
pub use on_disk::OnDisk;
pub use removal::Removal;
pub use report::{ApplyReport, Outcome, Refusal, StepReport};
pub use request::{ApplyError, Desired, Opened};
pub use transaction::Applier;
pub use wait::Patience;
