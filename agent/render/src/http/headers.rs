//! Renders the header modifications that Envoy accepts.

use envoy_types::pb::envoy::config::core::v3::{
    HeaderValueOption, header_value_option::HeaderAppendAction,
};
use sesame_proto::schema::header_part::{Fact, Kind};
use sesame_proto::schema::{Header, HeaderModifier, HeaderPart};

pub(crate) use crate::header_checks::{check_name, check_target, check_value, check_writable};
use crate::rendered::RenderProblems;
use crate::wrappers;

/// Envoy removes headers before it sets and adds headers.
#[derive(Clone, Default)]
pub(crate) struct HeaderChanges {
    pub(crate) add: Vec<HeaderValueOption>,
    pub(crate) remove: Vec<String>,
}

/// Omits and reports any change that would make Envoy reject the whole route table.
pub(crate) fn changes(
    object: &str,
    modifier: Option<&HeaderModifier>,
    problems: &mut RenderProblems,
) -> HeaderChanges {
    let Some(HeaderModifier { set, add, remove }) = modifier else {
        return HeaderChanges::default();
    };
    let mut changes = HeaderChanges::default();
    let sets = set
        .iter()
        .map(|h| (h, HeaderAppendAction::OverwriteIfExistsOrAdd));
    let adds = add
        .iter()
        .map(|h| (h, HeaderAppendAction::AppendIfExistsOrAdd));
    let mut usable = |name: &str, result: Result<String, String>, consequence: &str| {
        let result = result.map_err(|reason| format!("header `{name}`: {reason}"));
        problems.value(object, result, consequence)
    };
    for (header, action) in sets.chain(adds) {
        let Header { name, value, parts } = header;
        let format = check_writable(name).and_then(|()| format(header));
        if let Some(format) = usable(name, format, "it is left unchanged") {
            changes.add.push(HeaderValueOption {
                // By default, Envoy omits a header whose value is empty.
                keep_empty_value: value.is_empty() && parts.is_empty(),
                ..wrappers::header(name, format, action)
            });
        }
    }
    changes.remove.extend(without_value(set));
    for name in remove {
        let removed = check_writable(name).map(|()| name.clone());
        changes
            .remove
            .extend(usable(name, removed, "it is not removed"));
    }
    changes
}

fn format(
    Header {
        name: _,
        value,
        parts,
    }: &Header,
) -> Result<String, String> {
    if parts.is_empty() {
        check_value(value)?;
        return Ok(wrappers::literal(value));
    }
    let mut format = String::new();
    for HeaderPart { kind } in parts {
        match kind {
            Some(Kind::Literal(text)) => {
                check_value(text)?;
                format.push_str(&wrappers::literal(text));
            }
            Some(Kind::RequestHeader(name)) => {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
                if name.is_empty() || !name.bytes().all(plain) {
                    return Err(format!("`{name}` is not a valid request header name"));
                }
                format.extend(["%REQ(", name, ")%"]);
            }
            Some(Kind::Fact(fact)) => match Fact::try_from(*fact) {
                Ok(Fact::Unknown) | Err(_) => return Err(format!("the fact {fact} is unknown")),
                Ok(fact) => format.extend(["%", fact.as_str_name(), "%"]),
            },
            None => return Err("part of its value has an unknown kind".to_owned()),
        }
    }
    check_value(&format)?;
    Ok(format)
}

/// Envoy does not set a header if its fact is unavailable. Remove the client's value first, or the
/// backend would mistake it for the fact.
fn without_value(set: &[Header]) -> impl Iterator<Item = String> {
    let is_literal = |HeaderPart { kind }: &HeaderPart| matches!(kind, Some(Kind::Literal(text)) if !text.is_empty());
    let is_used = |name: &str| {
        let mut parts = set.iter().flat_map(|header| &header.parts);
        parts.any(|HeaderPart { kind }| {
            matches!(kind, Some(Kind::RequestHeader(it)) if it.eq_ignore_ascii_case(name))
        })
    };
    set.iter().filter_map(
        move |Header {
                  name,
                  value: _,
                  parts,
              }| {
            let may_be_empty = !parts.is_empty() && !parts.iter().any(is_literal);
            let removed = may_be_empty && check_writable(name).is_ok() && !is_used(name);
            removed.then(|| name.clone())
        },
    )
}

impl HeaderChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }

    pub(crate) fn then(&self, later: &Self) -> Self {
        let overwritten = |name: &str| {
            let set = later
                .add
                .iter()
                .filter(|o| o.append_action() == HeaderAppendAction::OverwriteIfExistsOrAdd)
                .filter_map(|option| option.header.as_ref().map(|header| &header.key));
            set.chain(&later.remove)
                .any(|n| n.eq_ignore_ascii_case(name))
        };
        let add = self
            .add
            .iter()
            .filter(|option| !option.header.as_ref().is_some_and(|h| overwritten(&h.key)))
            .cloned()
            .chain(later.add.iter().cloned())
            .collect();
        let remove = self.remove.iter().chain(&later.remove).cloned().collect();
        Self { add, remove }
    }
}
