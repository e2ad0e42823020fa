//! File access. `open` opens trusted files and refuses all others; `directory` reads and writes
//! snapshot directories; `bundle` reads and writes bundles; `random` reads the kernel's random
//! numbers.
//!
//! No other code in the workspace may open a file that another user may have written.

pub mod bundle;
pub mod directory;
pub mod open;
pub mod random;
