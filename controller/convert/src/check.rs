//! Decodes each output object, so that an object that Sesame cannot read is never written.

use serde_json::Value;
use sesame_kinds::decode::decode_value;
use sesame_kinds::world::{AnyObject, Kind};
use sesame_resolver::settings::check::faults;

/// A part of an output object that Sesame cannot read.
pub(super) struct UnreadableField {
    pub(super) path: String,
    pub(super) reason: String,
    pub(super) protects: bool,
    /// True if the object cannot be read at all.
    pub(super) is_fatal: bool,
}

pub(super) fn unreadable(object: &Value) -> Vec<UnreadableField> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let fault = |path: &str, reason: String| UnreadableField {
        path: path.to_owned(),
        reason,
        protects: true,
        is_fatal: true,
    };
    let Some(known) = Kind::find(version, kind) else {
        let reason = format!("Sesame does not read {kind} of {version}");
        return vec![fault("apiVersion", reason)];
    };
    let decoded = match decode_value(object.clone(), known, version) {
        Ok(decoded) => decoded,
        Err(error) => return vec![fault("spec", error.reason.to_string())],
    };
    let unknown = decoded.unknown_fields.into_iter();
    let mut found: Vec<UnreadableField> = unknown
        .map(|(_, field)| UnreadableField {
            path: field.path.to_string(),
            reason: "Sesame does not know this field".to_owned(),
            // Every field of an AccessPolicy protects something, whatever its name.
            protects: field.protects || kind == "AccessPolicy",
            is_fatal: false,
        })
        .collect();
    if let AnyObject::SesameConfiguration(configuration) = &decoded.object {
        let faults = faults(configuration).into_iter();
        found.extend(faults.map(|why| fault("spec", why)));
    }
    found
}
