//! Reads header and query parameter conditions in HTTPProxies.

use std::collections::BTreeSet;

use sesame_proto::schema::string_match::Kind as StringKind;
use sesame_proto::schema::text_match::Operator;
use sesame_proto::schema::{StringMatch, TextMatch};

use crate::syntax::regexes::Regexes;
use crate::syntax::{limits, names};
use sesame_kinds::api::{ProxyHeaderCondition, ProxyQueryCondition};

fn text(operator: Operator, value: &str, ignore_case: bool) -> TextMatch {
    TextMatch {
        operator: operator.into(),
        value: value.to_owned(),
        ignore_case,
        ..TextMatch::default()
    }
}

struct Texts<'a> {
    fixed: [&'a str; 4],
    regex: &'a str,
}

impl Texts<'_> {
    fn operator(
        self,
        (what, name): (&str, &str),
        kinds: impl IntoIterator<Item = Option<StringKind>>,
        regexes: &mut Regexes,
        instructions: &mut u64,
    ) -> Result<StringKind, String> {
        let Self { fixed, regex } = self;
        let given = fixed.into_iter().chain([regex]);
        for text in given.filter(|text| !text.is_empty()) {
            limits::field_value(format_args!("{what} {name:?}"), text, 4096)?;
        }
        let mut found: Vec<StringKind> = kinds.into_iter().flatten().collect();
        if !regex.is_empty() {
            let size = regexes.check(regex);
            let size = size.map_err(|why| format!("{name:?}: regex {regex:?} {why}"))?;
            *instructions = instructions.saturating_add(size);
            found.push(StringKind::Regex(regex.to_owned()));
        }
        match (found.pop(), found.pop()) {
            (Some(kind), None) => Ok(kind),
            (None, _) => Err(format!("{what} {name:?} has no operator; expected one")),
            (Some(_), Some(_)) => Err(format!(
                "{what} {name:?} has several operators; expected one"
            )),
        }
    }
}

fn exact(value: &str, ignore_case: bool) -> StringKind {
    if ignore_case {
        StringKind::Text(text(Operator::Exact, value, true))
    } else {
        StringKind::Exact(value.to_owned())
    }
}

/// Contour applies only the first of several operators. Sesame rejects such a condition, because
/// its author expects all operators to apply.
pub(super) fn header_match(
    condition: &ProxyHeaderCondition,
    regexes: &mut Regexes,
    instructions: &mut u64,
) -> Result<StringMatch, String> {
    let ProxyHeaderCondition {
        name,
        present,
        notpresent,
        contains,
        notcontains,
        ignore_case,
        exact: is,
        notexact,
        regex,
        treat_missing_as_empty,
    } = condition;
    names::check_token(format_args!("header.name"), name)?;
    let negated = |operator, value: &str| {
        StringKind::Text(TextMatch {
            negate: true,
            missing_is_empty: *treat_missing_as_empty,
            ..text(operator, value, *ignore_case)
        })
    };
    let given = |value: &str| !value.is_empty();
    let kinds = [
        present.then_some(StringKind::Present(true)),
        notpresent.then_some(StringKind::Present(false)),
        given(contains).then(|| StringKind::Text(text(Operator::Contains, contains, *ignore_case))),
        given(notcontains).then(|| negated(Operator::Contains, notcontains)),
        given(is).then(|| exact(is, *ignore_case)),
        given(notexact).then(|| negated(Operator::Exact, notexact)),
    ];
    let texts = Texts {
        fixed: [contains, notcontains, is, notexact],
        regex,
    };
    let kind = texts.operator(("header", name), kinds, regexes, instructions)?;
    Ok(StringMatch {
        name: name.to_ascii_lowercase(),
        kind: Some(kind),
    })
}

pub(super) fn query_match(
    condition: &ProxyQueryCondition,
    regexes: &mut Regexes,
    instructions: &mut u64,
) -> Result<StringMatch, String> {
    let ProxyQueryCondition {
        name,
        exact: is,
        prefix,
        suffix,
        regex,
        contains,
        ignore_case,
        present,
    } = condition;
    names::check_token(format_args!("queryParameter.name"), name)?;
    let given = |value: &str| !value.is_empty();
    let compared = |operator, value: &str| {
        given(value).then(|| StringKind::Text(text(operator, value, *ignore_case)))
    };
    let kinds = [
        given(is).then(|| exact(is, *ignore_case)),
        compared(Operator::Prefix, prefix),
        compared(Operator::Suffix, suffix),
        compared(Operator::Contains, contains),
        present.then_some(StringKind::Present(true)),
    ];
    let texts = Texts {
        fixed: [is, prefix, suffix, contains],
        regex,
    };
    let kind = texts.operator(("query parameter", name), kinds, regexes, instructions)?;
    Ok(StringMatch {
        name: name.clone(),
        kind: Some(kind),
    })
}

/// Returns `None` if some reading of an invalid condition does not need the header.
pub(super) fn header_presence(condition: &ProxyHeaderCondition) -> Option<StringMatch> {
    let ProxyHeaderCondition {
        name,
        present: _,
        notpresent,
        contains: _,
        notcontains: _,
        ignore_case: _,
        exact: _,
        notexact: _,
        regex: _,
        treat_missing_as_empty,
    } = condition;
    presence(&name.to_ascii_lowercase()).filter(|_| !notpresent && !treat_missing_as_empty)
}

pub(super) fn query_presence(condition: &ProxyQueryCondition) -> Option<StringMatch> {
    presence(&condition.name)
}

fn presence(name: &str) -> Option<StringMatch> {
    names::check_token(format_args!("name"), name).ok()?;
    Some(StringMatch {
        name: name.to_owned(),
        kind: Some(StringKind::Present(true)),
    })
}

pub(super) fn contradiction(what: &str, all: &[StringMatch]) -> Result<(), String> {
    let mut seen: BTreeSet<(&str, Fact<'_>)> = BTreeSet::new();
    for StringMatch { name, kind } in all {
        let Some((fact, opposite)) = kind.as_ref().and_then(facts) else {
            continue;
        };
        // As in Contour, two exact values for one name are an error even if the values are equal.
        let again = matches!(fact, Fact::Is) && seen.contains(&(name.as_str(), Fact::Is));
        if again {
            return Err(format!(
                "conditions on {what} {name:?} have two exact values; only one is allowed"
            ));
        }
        if seen.contains(&(name.as_str(), opposite)) {
            return Err(format!(
                "conditions on {what} {name:?} contradict each other"
            ));
        }
        seen.insert((name, fact));
        if let Some(StringKind::Exact(value)) = kind {
            seen.insert((name, Fact::IsText(value)));
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fact<'a> {
    Present,
    Absent,
    Is,
    IsText(&'a str),
    IsNot(&'a str),
    Contains(&'a str),
    ContainsNot(&'a str),
}

fn facts(kind: &StringKind) -> Option<(Fact<'_>, Fact<'_>)> {
    Some(match kind {
        StringKind::Present(true) => (Fact::Present, Fact::Absent),
        StringKind::Present(false) => (Fact::Absent, Fact::Present),
        StringKind::Exact(value) => (Fact::Is, Fact::IsNot(value)),
        StringKind::Text(text) => {
            let value = text.value.as_str();
            match (text.operator(), text.negate) {
                (Operator::Exact, false) => (Fact::Is, Fact::IsNot(value)),
                (Operator::Exact, true) => (Fact::IsNot(value), Fact::IsText(value)),
                (Operator::Contains, false) => (Fact::Contains(value), Fact::ContainsNot(value)),
                (Operator::Contains, true) => (Fact::ContainsNot(value), Fact::Contains(value)),
                _ => return None,
            }
        }
        StringKind::Regex(_) => return None,
    })
}
