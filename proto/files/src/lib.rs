//! Files: `open` opens the trusted ones and refuses all others; `directory` reads and writes snapshots that are kept in a
//! directory. No other code of the workspace may open a file that somebody else may have written.

pub mod directory;
pub mod open;
