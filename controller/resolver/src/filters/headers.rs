//! Reads header modifiers. Values are literal here; the proxy's renderer escapes them for Envoy.

use std::collections::HashMap;

use sesame_proto::schema;

use crate::syntax::header_names::{check_name, claim};
use crate::syntax::limits;
use sesame_kinds::api::{Header, HeaderModifier};

pub(crate) fn read(spec: &HeaderModifier) -> Result<schema::HeaderModifier, String> {
    let HeaderModifier { set, add, remove } = spec;
    let mut actions: HashMap<String, &'static str> = HashMap::new();
    let set = read_list("set", set, &mut actions)?;
    let add = read_list("add", add, &mut actions)?;
    limits::entries("remove", remove.len(), 0..=limits::MAX_FILTER_HEADERS)?;
    let mut removed = Vec::with_capacity(remove.len());
    for (i, name) in remove.iter().enumerate() {
        check_name(format_args!("remove[{i}]"), name)?;
        if claim(&mut actions, name, "remove")? {
            removed.push(name.clone());
        }
    }
    Ok(schema::HeaderModifier {
        set,
        add,
        remove: removed,
    })
}

fn read_list(
    field: &'static str,
    list: &[Header],
    actions: &mut HashMap<String, &'static str>,
) -> Result<Vec<schema::Header>, String> {
    limits::entries(field, list.len(), 0..=limits::MAX_FILTER_HEADERS)?;
    let mut found = Vec::with_capacity(list.len());
    for (i, Header { name, value }) in list.iter().enumerate() {
        check_name(format_args!("{field}[{i}].name"), name)?;
        limits::field_value(format_args!("{field}[{i}]"), value, 4096)?;
        if claim(actions, name, field)? {
            found.push(schema::Header {
                name: name.clone(),
                value: value.clone(),
                parts: Vec::new(),
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, value: &str) -> Header {
        Header {
            name: name.to_owned(),
            value: value.to_owned(),
        }
    }

    #[test]
    fn first_duplicate_header_wins_and_conflicting_actions_fail() {
        let spec = HeaderModifier {
            set: vec![header("X-A", "1"), header("x-a", "2")],
            ..HeaderModifier::default()
        };
        let read_ = read(&spec).expect("valid");
        assert_eq!(read_.set.len(), 1);
        assert_eq!(read_.set[0].value, "1");
        let spec = HeaderModifier {
            remove: vec!["X-a".to_owned()],
            ..spec
        };
        assert!(read(&spec).is_err());
    }

    #[test]
    fn bad_names_and_values_are_refused() {
        for (name, value) in [
            (":path", "a"),
            ("Host", "a"),
            ("Content-Length", "0"),
            ("transfer_encoding", "chunked"),
            ("a b", "c"),
            ("a", ""),
            ("a", "b\r\nc: d"),
            ("", "a"),
        ] {
            let spec = HeaderModifier {
                add: vec![header(name, value)],
                ..HeaderModifier::default()
            };
            assert!(read(&spec).is_err(), "{name:?} {value:?}");
        }
    }
}
