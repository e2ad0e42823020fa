//! Small conversions of values.

use serde_json::{Map, Value};
use sesame_kinds::api::Quantity;

/// Inserts a value unless it is `None`.
pub(super) fn put<T: Into<Value>>(map: &mut Map<String, Value>, key: &str, value: Option<T>) {
    if let Some(value) = value {
        map.insert(key.to_owned(), value.into());
    }
}

/// Inserts a list unless it is empty.
pub(super) fn put_list<T: Into<Value>>(map: &mut Map<String, Value>, key: &str, list: Vec<T>) {
    if !list.is_empty() {
        let list = list.into_iter().map(Into::into).collect();
        map.insert(key.to_owned(), Value::Array(list));
    }
}

/// Inserts a mapping unless it is empty.
pub(super) fn put_map(map: &mut Map<String, Value>, key: &str, value: Map<String, Value>) {
    if !value.is_empty() {
        map.insert(key.to_owned(), Value::Object(value));
    }
}

/// Returns the mapping at a path, and creates it if it is unset. Returns `None` if another value is
/// in the way.
pub(super) fn mapping_at<'v>(
    value: &'v mut Value,
    path: &[&str],
) -> Option<&'v mut Map<String, Value>> {
    let mut fields = value.as_object_mut()?;
    for name in path {
        let field = fields.entry(*name).or_insert(Value::Null);
        if field.is_null() {
            *field = Value::Object(Map::new());
        }
        fields = field.as_object_mut()?;
    }
    Some(fields)
}

/// Returns the milliseconds of a duration such as `1h30m`, in the Gateway API's format.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let mut rest = text;
    let (mut total, mut parts) = (0_u64, 0);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let unit = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(unit);
        let factor = match unit {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1000,
            "ms" => 1,
            _ => return None,
        };
        if digits == 0 || digits > 5 {
            return None;
        }
        total += number.parse::<u64>().ok()? * factor;
        parts += 1;
        rest = after;
    }
    (1..=4).contains(&parts).then_some(total)
}

/// Returns a size in the form that Sesame accepts: digits, optionally with `Ki`, `Mi` or `Gi`.
pub(super) fn size(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_u64()?.to_string(),
        _ => return None,
    };
    let number = ["Ki", "Mi", "Gi"]
        .iter()
        .find_map(|unit| text.strip_suffix(unit))
        .unwrap_or(&text);
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain && number.bytes().next().is_some_and(|first| first != b'0') {
        return Some(text);
    }
    let billionths = Quantity(text).billionths()?;
    let is_whole = billionths > 0 && billionths % 1_000_000_000 == 0;
    is_whole.then(|| (billionths / 1_000_000_000).to_string())
}

/// Returns a duration of the Gateway API.
pub(super) fn duration(milliseconds: u64) -> String {
    match milliseconds {
        ms if ms % 1000 != 0 => format!("{ms}ms"),
        ms if ms % 60_000 == 0 && ms > 0 && ms % 3_600_000 != 0 => format!("{}m", ms / 60_000),
        ms if ms % 3_600_000 == 0 && ms > 0 => format!("{}h", ms / 3_600_000),
        ms => format!("{}s", ms / 1000),
    }
}

/// Returns a size as policies write it.
pub(super) fn bytes(size: u64) -> String {
    let units = [(30, "Gi"), (20, "Mi"), (10, "Ki")];
    let unit = units
        .into_iter()
        .find(|(shift, _)| size >> shift << shift == size && size > 0);
    match unit {
        Some((shift, unit)) => format!("{}{unit}", size >> shift),
        None => size.to_string(),
    }
}

/// Returns a network. An address becomes the network that contains only it.
pub(super) fn network(text: &str) -> String {
    match (text.contains('/'), text.contains(':')) {
        (true, _) => text.to_owned(),
        (false, true) => format!("{text}/128"),
        (false, false) => format!("{text}/32"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_are_gateway_api_durations() {
        for (text, expected) in [
            ("10s", Some(10_000)),
            ("1h30m", Some(5_400_000)),
            ("24h0m0s", Some(86_400_000)),
            ("1.5s", None),
            ("", None),
            ("10", None),
            ("-1s", None),
            ("1s1s1s1s1s", None),
        ] {
            assert_eq!(milliseconds(text), expected, "{text}");
        }
    }

    #[test]
    fn sizes_are_whole_bytes() {
        for (value, expected) in [
            (json!("4Mi"), Some("4Mi")),
            (json!(1024), Some("1024")),
            (json!("10M"), Some("10000000")),
            (json!("1.5Ki"), Some("1536")),
            (json!("0"), None),
            (json!("100m"), None),
            (json!(true), None),
        ] {
            assert_eq!(size(&value).as_deref(), expected, "{value}");
        }
    }
}
