//! The snapshot (the resolved configuration of one Gateway) in all stored and transmitted forms.
//!
//! The resolver turns Gateway API objects into a snapshot, and an agent renders the snapshot as
//! Envoy resources. Snapshots have a canonical order, so the same configuration always has the same
//! bytes and digest (its revision). Private keys accompany a snapshot but are never part of it.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use sesame_proto::schema::{Port, Snapshot};
//! use sesame_proto::shard::{self, ShardError};
//!
//! # fn main() -> Result<(), ShardError> {
//! let snapshot = Snapshot {
//!     gateway: "Gateway/default/edge".to_owned(),
//!     ports: vec![Port { port: 80, ..Port::default() }],
//!     ..Snapshot::default()
//! };
//! let sharded = shard::split(&snapshot)?;
//! assert_eq!(sharded.manifest.revision, sesame_proto::digest::revision(&snapshot));
//!
//! // Readers have the manifest, and the stored bytes of each shard by name.
//! let shards = sharded.shards.into_iter().map(|shard| (shard.name, shard.bytes));
//! let mut stored: BTreeMap<_, _> = shards.collect();
//! assert_eq!(shard::join(&sharded.manifest, &stored)?, snapshot);
//!
//! stored.clear();
//! let error = shard::join(&sharded.manifest, &stored);
//! assert!(matches!(error, Err(ShardError::Missing { .. })));
//! # Ok(())
//! # }
//! ```
//!
//! This crate must never depend on Kubernetes or Envoy, open a file, or read a clock.

#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod addresses;
pub mod at_rest;
pub mod bounds;
pub mod bundle;
pub mod canonical_path;
pub mod causes;
pub mod credentials;
mod csrf;
pub mod delta;
pub mod descriptor_sets;
pub mod digest;
pub mod discovery;
pub mod dns_name;
pub mod drained;
pub mod encoded;
pub mod expressions;
pub mod field_names;
mod fleet_hosts;
pub mod json;
pub mod jwks;
pub mod key_sets;
pub mod keys;
pub mod log_facts;
pub mod network;
mod oidc;
pub mod owned;
pub mod pem;
pub mod provenance;
mod rate_limits;
pub mod refusal;
pub mod rollout;
mod route_filters;
pub mod salts;
pub mod schema;
pub mod shard;
pub mod signature;
pub mod sizes;
mod substitution;
pub mod terminal;
pub mod tls_parameters;
pub mod wire;
