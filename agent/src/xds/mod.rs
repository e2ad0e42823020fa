//! The files that Envoy watches, as values: one subscription each, the bytes of a file, and the versions by which Envoy
//! says what it took.
//!
//! Pure: nothing here opens a file. Where the files lie is `sesame_render::layout`.

pub(crate) mod response;
mod subscription;
mod version_texts;

pub use subscription::{Kind, Subscription};
pub use version_texts::VersionTexts;
