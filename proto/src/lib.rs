//! The snapshot, i.e. the resolved configuration of one Gateway, in all the forms in which it is
//! stored and transmitted.
//!
//! The resolver turns Gateway API objects into a snapshot, and an agent renders the snapshot as
//! Envoy resources. A snapshot is a protobuf message in canonical order. Therefore, the same
//! configuration always has the same bytes and the same digest, which is called its revision. A
//! snapshot is published as shards that fit into ConfigMaps, or as a single signed file. Private
//! keys accompany a snapshot but are never part of it.
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
//! - `schema` contains the types generated from `proto/snapshot.proto`; `wire` handles encoded
//!   messages that would be too expensive to decode.
//! - `provenance` parses and formats names in a snapshot; `dns_name` checks object names.
//! - `digest` computes digests of snapshots; `delta` describes the difference between two versions
//!   of a Gateway.
//! - `shard` splits a snapshot into pieces for storage; `encoded` keeps a snapshot in memory;
//!   `json` prints it.
//! - `keys` encodes private keys, which accompany a snapshot; `signature` signs published content.
//! - `at_rest` defines how a host stores private keys on disk.
//! - `bundle` combines a snapshot, its keys and signatures in one file, for hosts without network
//!   access.
//! - `canonical_path` normalizes paths as Envoy does before matching routes.
//! - `pem` reads certificates and keys in text form; `jwks` reduces sets of public keys, and `key_sets`
//!   describes those that are fetched.
//! - `bounds` rejects messages that would take too much memory, before they are decoded.
//! - `field_names`, `log_facts`, `expressions`, `sizes`, `addresses` and `tls_parameters` limit the
//!   contents of a snapshot. The resolver enforces the limits, and the renderer checks them again.
//!
//! This crate must never depend on Kubernetes or Envoy, open a file, or read a clock.

pub mod addresses;
pub mod at_rest;
pub mod bounds;
pub mod bundle;
pub mod canonical_path;
pub mod delta;
pub mod digest;
pub mod dns_name;
pub mod encoded;
pub mod expressions;
pub mod field_names;
pub mod json;
pub mod jwks;
pub mod key_sets;
pub mod keys;
pub mod log_facts;
pub mod network;
pub mod pem;
pub mod provenance;
pub mod refusal;
pub mod schema;
pub mod shard;
pub mod signature;
pub mod sizes;
mod substitution;
pub mod tls_parameters;
pub mod wire;
