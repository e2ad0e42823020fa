//! Parses a settings file into keys, line numbers and YAML values.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{MessageFormatter as _, Options, Spanned, UserMessageFormatter};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingEntry {
    pub(crate) key: String,
    /// 1-based.
    pub(crate) line: u64,
    pub(crate) value: SettingValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettingValue {
    Nothing,
    Switch(bool),
    /// A string, or an integer as a string.
    Text(String),
    /// A number with a decimal point. Invalid, because YAML would read `1.10` as `1.1`.
    Fraction,
    List(Vec<SettingValue>),
    Pairs(Vec<(String, SettingValue)>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingFault {
    /// 1-based, or 0 if the error concerns the whole file.
    pub(crate) line: u64,
    /// Starts with the key if the error concerns a single entry.
    pub(crate) message: String,
}

pub(super) fn parse(text: &str) -> Result<Vec<SettingEntry>, SettingFault> {
    let entries: Result<Option<Entries>, _> = serde_saphyr::from_str_with_options(text, options());
    match entries {
        Ok(entries) => Ok(entries.unwrap_or_default().0),
        Err(error) => {
            let error = error.without_snippet();
            let message: String = UserMessageFormatter
                .format_message(error)
                .chars()
                .take(500)
                .collect();
            Err(SettingFault {
                line: error.location().map_or(1, |location| location.line()),
                message,
            })
        }
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    }
}

#[derive(Default)]
struct Entries(Vec<SettingEntry>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping of options to values, as in `drain-seconds: 30`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Entries, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = fields.next_key::<Spanned<String>>()? {
            entries.push(SettingEntry {
                line: key.referenced.line(),
                key: key.value,
                value: fields.next_value()?,
            });
        }
        Ok(Entries(entries))
    }
}

impl<'de> Deserialize<'de> for SettingValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = SettingValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a mapping")
    }

    fn visit_unit<E: Error>(self) -> Result<SettingValue, E> {
        Ok(SettingValue::Nothing)
    }

    fn visit_none<E: Error>(self) -> Result<SettingValue, E> {
        Ok(SettingValue::Nothing)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<SettingValue, E> {
        Ok(SettingValue::Switch(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<SettingValue, E> {
        Ok(SettingValue::Text(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<SettingValue, E> {
        Ok(SettingValue::Text(value.to_string()))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<SettingValue, E> {
        Ok(SettingValue::Fraction)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SettingValue, E> {
        Ok(SettingValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<SettingValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(SettingValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<SettingValue, A::Error> {
        let mut pairs = Vec::new();
        while let Some(key) = fields.next_key::<String>()? {
            pairs.push((key, fields.next_value()?));
        }
        Ok(SettingValue::Pairs(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_parse_with_lines_and_all_value_kinds() {
        let text = "# A host.\nmanifests: /m\nkube: true\n\ndrain-seconds: 30\naddress:\n  - 192.0.2.1\n  - '::1'\nport-map:\n  80: 8080\nhost: 1.10\nfleet:\n";
        let entries = parse(text).unwrap();
        let texts = |items: &[&str]| {
            items
                .iter()
                .map(|i| SettingValue::Text((*i).to_owned()))
                .collect()
        };
        let expected = [
            ("manifests", 2, SettingValue::Text("/m".to_owned())),
            ("kube", 3, SettingValue::Switch(true)),
            ("drain-seconds", 5, SettingValue::Text("30".to_owned())),
            (
                "address",
                6,
                SettingValue::List(texts(&["192.0.2.1", "::1"])),
            ),
            (
                "port-map",
                9,
                SettingValue::Pairs(vec![(
                    "80".to_owned(),
                    SettingValue::Text("8080".to_owned()),
                )]),
            ),
            ("host", 11, SettingValue::Fraction),
            ("fleet", 12, SettingValue::Nothing),
        ];
        let expected = expected.map(|(key, line, value)| SettingEntry {
            key: key.to_owned(),
            line,
            value,
        });
        assert_eq!(entries, expected);
        assert_eq!(parse("").unwrap(), []);
        assert_eq!(parse("# Nothing yet.\n").unwrap(), []);
    }

    #[test]
    fn settings_file_refuses_non_mappings_and_duplicate_keys() {
        for (text, line) in [
            ("- manifests\n", 1),
            ("manifests: /m\nmanifests: /n\n", 2),
            ("manifests: /m\nfleet: [\n", 2),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.line >= line, "{text}: {fault:?}");
            assert!(!fault.message.is_empty());
        }
    }
}
