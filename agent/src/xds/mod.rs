//! Models the files that Envoy watches: Envoy's subscription to each file, the file's bytes, and
//! the version that Envoy reports once it has accepted the file.
//!
//! Pure: no code here opens a file. `sesame_render::layout` defines the paths.

mod listener_name;
pub(crate) mod response;
mod subscription;
mod version_texts;

pub(crate) use listener_name::parse_listener_name;
pub use listener_name::tcp_addresses;
pub use subscription::{Subscription, XdsKind};
pub use version_texts::VersionTexts;
