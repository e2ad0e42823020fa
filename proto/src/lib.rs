//! The snapshot: one Gateway's resolved configuration, as a controller publishes it and an agent renders it.
//!
//! - `schema` holds the types, built from `proto/snapshot.proto`; `wire` encodes by hand where values would cost too much.
//! - `provenance` reads and writes the names in a snapshot, and `dns_name` checks the names of objects.
//! - `digest` tells that two snapshots are the same; `delta` is the difference of their route tables.
//! - `shard` splits a snapshot into pieces that can be stored; `encoded` keeps one in memory; `json` prints one.
//! - `keys` carries private keys beside a snapshot, never in it; `signature` signs what is published.
//! - `at_rest` is how a host keeps private keys on its disk.
//! - `bundle` is all of it as one signed file, for hosts that are connected to nothing.
//! - `canonical_path` normalizes paths like Envoy does before it compares them with routes.
//! - `pem` reads certificates and keys that come as text.
//! - `bounds` refuses messages that would take too much memory, before they are decoded.
//! - `field_names`, `log_facts`, `expressions`, `sizes`, `addresses` and `tls_parameters` are the limits of what a snapshot may say. Resolution
//!   keeps them, and rendering checks them again.
//!
//! This crate must never know Kubernetes or Envoy, open a file or read a clock.

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
pub mod keys;
pub mod log_facts;
pub mod pem;
pub mod provenance;
pub mod refusal;
pub mod schema;
pub mod shard;
pub mod signature;
pub mod sizes;
pub mod tls_parameters;
pub mod wire;
