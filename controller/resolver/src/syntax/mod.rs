//! Checks the syntax of names, hostnames, durations and regular expressions, and formats the
//! errors.

pub(crate) mod durations;
pub(crate) mod header_names;
pub(crate) mod hostnames;
pub(crate) mod limits;
pub(crate) mod names;
pub(crate) mod parsed;
pub(crate) mod re2;
pub(crate) mod regexes;
pub(crate) mod sizes;
