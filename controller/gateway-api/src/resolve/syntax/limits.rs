//! Limits of the API's schema on the lengths of lists and values, and the messages about them.

use std::fmt::Arguments;
use std::ops::RangeInclusive;

use super::names::is_field_value;

/// Returns an error unless the list in this field has an allowed number of entries.
pub(crate) fn entries(
    field: &str,
    count: usize,
    allowed: RangeInclusive<usize>,
) -> Result<(), String> {
    if allowed.contains(&count) {
        return Ok(());
    }
    let (least, most) = allowed.into_inner();
    Err(match least {
        0 => format!("{field} has {count} entries; at most {most} are allowed"),
        _ => format!("{field} has {count} entries; {least} to {most} are allowed"),
    })
}

/// Returns an error if the value of this field has too many characters.
pub(crate) fn characters(field: &str, value: &str, most: usize) -> Result<(), String> {
    let count = value.len();
    if count <= most {
        return Ok(());
    }
    Err(format!(
        "{field} has {count} characters; at most {most} are allowed"
    ))
}

/// Returns an error unless the value is text of a good length that may stand in a header.
pub(crate) fn field_value(at: Arguments<'_>, value: &str, most: usize) -> Result<(), String> {
    if !(1..=most).contains(&value.len()) {
        return Err(format!(
            "{at}.value has {} characters; expected 1 to {most}",
            value.len()
        ));
    }
    if !is_field_value(value) {
        return Err(format!("{at}.value {value:?} has control characters"));
    }
    Ok(())
}
