//! The snapshot: one Gateway's resolved configuration, as a controller publishes it and an agent renders it.
//!
//! `schema` holds the types, built from `proto/snapshot.proto`; `digest` says when two snapshots are the
//! same; `provenance` reads the names in one, and `dns_name` the names of objects; `keys` carries private keys beside
//! (never in) a snapshot; `shard` and `directory` are how a snapshot is stored; `bounds` refuses what would take too much memory before it is decoded; `json` prints one;
//! `field_names`, `expressions` and `addresses` are what a snapshot may not say, and is not trusted not to; `open` opens files
//! that are trusted. This crate knows neither Kubernetes nor Envoy, and reads no clock.

pub mod addresses;
pub mod bounds;
pub mod digest;
pub mod dns_name;
pub mod encoded;
pub mod expressions;
pub mod field_names;
pub mod json;
pub mod keys;
pub mod other_hosts;
pub mod provenance;
pub mod refusal;
pub mod schema;
pub mod shard;
pub mod signature;
pub mod wire;
