//! Files: `open` opens the trusted ones and refuses all others; `directory` reads and writes snapshots that are kept in a
//! directory; `bundle` reads and writes those that are one file; `random` is the kernel's random numbers. No other code of the workspace may open a file that somebody else may have written.

pub mod bundle;
pub mod directory;
pub mod open;
pub mod random;
