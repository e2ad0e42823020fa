//! Reads headers for collectors. Rejects headers that affect message framing, and values that Envoy
//! would change.

use sesame_proto::{field_names, schema};

use crate::syntax::{limits, names};
use sesame_kinds::api::Header;
use sesame_kinds::status::{Grounds, Reason, unsupported};

/// Sorts headers by name. The error names the field.
pub(super) fn read(field: &str, headers: &[Header]) -> Result<Vec<schema::Header>, Grounds> {
    let unsaid = |header: &Header| header.value.contains('%');
    if let Some(place) = headers.iter().position(unsaid) {
        return Err(unsupported(format!(
            "{field}[{place}].value has \"%\", which Envoy would not send unchanged; leave it out"
        )));
    }
    checked(field, headers).map_err(|why| (Reason::Invalid, why))
}

fn checked(field: &str, headers: &[Header]) -> Result<Vec<schema::Header>, String> {
    limits::entries(field, headers.len(), 0..=limits::MAX_COLLECTOR_HEADERS)?;
    let mut found: Vec<schema::Header> = Vec::with_capacity(headers.len());
    for (i, Header { name, value }) in headers.iter().enumerate() {
        let at = format!("{field}[{i}]");
        names::check_token(format_args!("{at}.name"), name)?;
        if let Some(why) = field_names::reserved(name) {
            return Err(format!(
                "{at}.name {name:?} cannot be sent: it {why}; leave it out"
            ));
        }
        limits::field_value(format_args!("{at}"), value, limits::MAX_HEADER_VALUE)?;
        found.push(schema::Header {
            name: name.to_ascii_lowercase(),
            value: value.clone(),
            parts: Vec::new(),
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    match found.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(pair) => Err(format!(
            "{field} contains duplicate header {:?}",
            pair[0].name
        )),
        None => Ok(found),
    }
}
