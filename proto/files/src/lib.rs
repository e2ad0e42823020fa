//! Safely opens files that other users could have written, such as snapshots and bundles.
//!
//! Opens files without blocking, checks them once they are open, and never reads beyond a size
//! limit. If possible, errors contain a command that fixes the owner or mode.
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
//! No other code in the workspace may open files that another user could have written.

pub mod bundle;
pub mod directory;
pub mod open;
pub mod random;
