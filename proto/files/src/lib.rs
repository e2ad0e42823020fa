//! Files at the edge of everything: `open` opens those that are trusted, and refuses the others; `directory` reads and
//! writes snapshots that are kept in a directory. Nothing else in the workspace opens a file that somebody else may have
//! written.

pub mod directory;
pub mod open;
