//! Syntax of names, hostnames, durations and regular expressions: checks of form, and the errors about it.
//!
//! Nothing here knows an object or what it refers to.

pub(crate) mod durations;
pub(crate) mod hostnames;
pub(crate) mod limits;
pub(crate) mod names;
pub(crate) mod re2;
pub(crate) mod regexes;
