//! Compares desired objects with stored objects.

use serde_json::Value;

pub(crate) fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(name, part)| {
            // The API server omits empty fields or writes null.
            let nothing = matches!(part, Value::Array(all) if all.is_empty()) || *part == 0;
            let whole = whole.get(name).filter(|whole| !whole.is_null());
            whole.map_or(nothing, |whole| holds(whole, part))
        }),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(w, p)| holds(w, p))
        }
        _ => whole == part,
    }
}
