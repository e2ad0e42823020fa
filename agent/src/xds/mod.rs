//! The files that Envoy watches, as values: one subscription each, the bytes of a file, and the
//! versions by which Envoy confirms it.
//!
//! Pure: nothing here opens a file. `sesame_render::layout` has the paths.

mod listener_name;
pub(crate) mod response;
mod subscription;
mod version_texts;

pub(crate) use listener_name::parse_listener_name;
pub use listener_name::tcp_addresses;
pub use subscription::{Subscription, XdsKind};
pub use version_texts::VersionTexts;
