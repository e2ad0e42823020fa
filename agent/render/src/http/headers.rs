//! Header modifications (set, add and remove), and the headers that Envoy accepts.

use envoy_types::pb::envoy::config::core::v3::{
    HeaderValueOption, header_value_option::HeaderAppendAction,
};
use sesame_proto::schema::{Header, HeaderModifier};

pub(crate) use crate::header_checks::{check_name, check_target, check_value, check_writable};
use crate::rendered::RenderProblems;
use crate::wrappers;

/// A modifier as Envoy's fields. Envoy removes, then sets, then adds.
#[derive(Clone, Default)]
pub(crate) struct HeaderChanges {
    pub(crate) add: Vec<HeaderValueOption>,
    pub(crate) remove: Vec<String>,
}

/// Returns the changes of a modifier. Changes that would make Envoy reject the whole route table
/// are left out and reported.
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
    let mut usable = |name: &str, result: Result<(), String>, consequence: &str| {
        let result = result.map_err(|reason| format!("header `{name}`: {reason}"));
        problems.value(object, result, consequence).is_some()
    };
    for (Header { name, value }, action) in sets.chain(adds) {
        let checked = check_writable(name).and_then(|()| Ok(check_value(value)?));
        if usable(name, checked, "it is left unchanged") {
            changes.add.push(HeaderValueOption {
                // By default Envoy drops a header with an empty value.
                keep_empty_value: value.is_empty(),
                // `%` starts an Envoy format, but the value is literal.
                ..wrappers::header(name, value.replace('%', "%%"), action)
            });
        }
    }
    for name in remove {
        if usable(name, check_writable(name), "it is not removed") {
            changes.remove.push(name.clone());
        }
    }
    changes
}

impl HeaderChanges {
    /// Returns true if nothing changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }

    /// Returns these changes, followed by later ones.
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
