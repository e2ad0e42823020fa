//! Checks which headers an object may set or remove.

use std::collections::HashMap;
use std::fmt::Arguments;

use sesame_proto::field_names::{self, Reserved};

use super::names;

pub(crate) fn check_name(at: Arguments<'_>, name: &str) -> Result<(), String> {
    names::check_token(at, name)?;
    check_writable(at, name)
}

/// Rejects headers that are reserved for the proxy or, like Host, must be changed in another way.
pub(crate) fn check_writable(at: Arguments<'_>, name: &str) -> Result<(), String> {
    match field_names::reserved(name) {
        None => Ok(()),
        Some(Reserved::Host) => Err(format!(
            "{at} {name:?} cannot be changed here; use a URLRewrite filter with hostname"
        )),
        Some(why) => Err(format!(
            "{at} {name:?} cannot be changed here: it {why}; leave it out"
        )),
    }
}

/// Returns false if `action` has already claimed the header. Fails if another action has.
pub(crate) fn claim(
    actions: &mut HashMap<String, &'static str>,
    name: &str,
    action: &'static str,
) -> Result<bool, String> {
    match actions.insert(name.to_ascii_lowercase(), action) {
        None => Ok(true),
        Some(before) if before == action => Ok(false),
        Some(before) => Err(format!(
            "{action}: header {name:?} is also in {before}; only one action for a header is allowed"
        )),
    }
}
