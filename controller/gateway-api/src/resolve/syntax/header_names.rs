//! Names of headers that objects may change.

use std::collections::HashMap;
use std::fmt::Arguments;

use sesame_proto::field_names::{self, Reserved};

use super::names;

/// Returns an error for a name that is malformed, or that only the proxy may write.
pub(crate) fn check_name(at: Arguments<'_>, name: &str) -> Result<(), String> {
    names::check_token(at, name)?;
    check_writable(at, name)
}

/// Returns an error for a field that only the proxy may write.
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

/// Returns true if this is the first mention of the header in its list. Fails if another list has
/// it too.
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
