//! Models the files that Envoy watches, their subscriptions, and the versions that Envoy reports.
//! Never opens a file. `crate::layout` defines the paths.

mod listener_name;
pub mod response;
mod subscription;
mod version_texts;

pub use listener_name::parse_listener_name;
pub use listener_name::{quic_addresses, tcp_addresses};
pub use subscription::{Subscription, XdsKind};
pub use version_texts::VersionTexts;
