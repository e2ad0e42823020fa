//! Turns snapshots into the files that Envoy watches, and supervises the Envoy process.
//!
//! A transaction brings Envoy's files from one accepted state to the next. It never leaves a file
//! on disk that Envoy rejects, and removes all listeners only if explicitly allowed.
//!
//! ```
//! use envoy_types::pb::envoy::config::listener::v3::Listener;
//! use prost::Message as _;
//! use sesame_agent::apply::{Applier, ApplyError, Desired, Outcome};
//! use sesame_agent::envoy::log::EnvoyLog;
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
//!
//! Data flows from `source` (snapshots) through the pure crate `sesame-render` (Envoy resources)
//! and `apply` (files) to `envoy` (process). Modules import only modules further to the left:
//! `host` ← `xds` ← `envoy` ← `apply` ← `quarantine` ← `publish` ← `run` ← `doctor` ← `collect` ←
//! `cli`. `source` imports only `host`.

pub mod access_log;
pub mod apply;
pub mod cli;
mod collect;
pub mod doctor;
pub mod envoy;
mod handshake;
pub mod host;
#[cfg(feature = "cluster")]
mod join;
pub mod publish;
pub mod quarantine;
#[cfg(feature = "cluster")]
pub mod reporter;
pub mod run;
pub mod seal;
pub mod source;
mod tickets;
pub mod xds;
