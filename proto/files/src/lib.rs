//! Safely opens files that other users could have written. Also reads and writes stored snapshots
//! and bundles.
//!
//! A path may refer to a link, a pipe or another user's file, and to a different file a moment
//! later. This crate opens a file without blocking, checks the open file, and never reads beyond a
//! size limit. Each error contains the path, the reason and, if possible, a command that fixes the
//! owner or mode.
//!
//! ```
//! use std::fs::{self, Permissions};
//! use std::os::unix::fs::PermissionsExt as _;
//!
//! use sesame_files::open::{self, OpenError, Rule};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = tempfile::tempdir()?;
//! let path = directory.path().join("token");
//! fs::write(&path, "secret")?;
//! fs::set_permissions(&path, Permissions::from_mode(0o600))?;
//! // Read at most 1024 bytes of a file that only this user or root can write.
//! assert_eq!(open::read_text(&path, Rule::Own, 1024)?, "secret");
//!
//! fs::set_permissions(&path, Permissions::from_mode(0o666))?;
//! let refused = open::read_text(&path, Rule::Own, 1024);
//! assert!(matches!(refused, Err(OpenError::Mode { mode: 0o666, .. })));
//! # Ok(())
//! # }
//! ```
//!
//! - `open` opens files and directories after checking that they can be trusted.
//! - `directory` reads and writes snapshot directories.
//! - `bundle` creates, reads and writes bundles.
//! - `random` returns random bytes from the kernel.
//!
//! No other code in the workspace may open files that another user could have written.

pub mod bundle;
pub mod directory;
pub mod open;
pub mod random;
