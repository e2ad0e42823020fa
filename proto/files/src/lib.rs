//! File access. `open` opens files after checking that they can be trusted; `directory` reads and
//! writes snapshot directories; `bundle` reads and writes bundles; `random` returns random bytes
//! from the kernel.
//!
//! No other code in the workspace may open a file that another user may have written.

pub mod bundle;
pub mod directory;
pub mod open;
pub mod random;
