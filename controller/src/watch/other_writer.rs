//! Finds other programs that write the `Valid` condition of an HTTPProxy, such as Contour.

use jiff::Timestamp;
use serde_json::Value;

/// As in the API server's encoding of managed fields.
const VALID: &str = r#"k:{"type":"Valid"}"#;

/// The newest write by another field manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherWriter {
    pub(crate) manager: Box<str>,
    pub(crate) at: Timestamp,
}

impl OtherWriter {
    /// Reads `metadata.managedFields`. Returns `None` if only `own` writes the condition.
    pub(super) fn of_valid(managed: &Value, own: &str) -> Option<Self> {
        let entries = managed.as_array()?.iter();
        let others = entries
            .filter(|entry| entry["manager"] != own && owns_valid(&entry["fieldsV1"]["f:status"]));
        let writers = others.filter_map(|entry| {
            Some(Self {
                manager: entry["manager"].as_str()?.into(),
                at: entry["time"].as_str()?.parse().ok()?,
            })
        });
        writers.max_by_key(|writer| writer.at)
    }
}

/// The value is empty if the conditions have one owner for the whole list, depending on the CRD.
pub(super) fn owns_valid(status: &Value) -> bool {
    let conditions = status["f:conditions"].as_object();
    conditions.is_some_and(|owned| owned.is_empty() || owned.contains_key(VALID))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OWN: &str = "sesame-controller";

    fn found(entries: &[(&str, &str, Value)]) -> Option<(String, String)> {
        let entry = |(manager, time, conditions): &(&str, &str, Value)| {
            json!({"manager": manager, "operation": "Update", "subresource": "status", "time": time,
                "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:conditions": conditions}}})
        };
        let managed: Vec<Value> = entries.iter().map(entry).collect();
        let writer = OtherWriter::of_valid(&json!(managed), OWN)?;
        Some((writer.manager.into(), writer.at.to_string()))
    }

    #[test]
    fn newest_other_writer_of_valid_is_found() {
        let valid = || json!({".": {}, VALID: {".": {}, "f:status": {}}});
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z");
        let contour = Some(("contour".to_owned(), early.to_owned()));
        for (entries, expected) in [
            (vec![("contour", early, valid())], contour.clone()),
            (vec![("contour", early, json!({}))], contour.clone()),
            (
                vec![
                    ("contour", early, valid()),
                    (OWN, late, valid()),
                    ("kubectl", late, json!({".": {}})),
                    ("odd", "yesterday", valid()),
                ],
                contour,
            ),
            (
                vec![("contour", early, valid()), ("other", late, valid())],
                Some(("other".to_owned(), late.to_owned())),
            ),
            (
                vec![("x", late, json!({r#"k:{"type":"Other"}"#: {}}))],
                None,
            ),
            (vec![("x", late, Value::Null)], None),
        ] {
            assert_eq!(found(&entries), expected, "{entries:?}");
        }
        assert_eq!(OtherWriter::of_valid(&Value::Null, OWN), None);
    }
}
