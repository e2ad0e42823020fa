//! The contents of a log line, independent of its output format.
//!
//! Never use a fact's name for a value that clients can forge.

use std::collections::BTreeMap;

use sesame_proto::log_facts;
use sesame_proto::schema::line_form::Fact;
use sesame_proto::schema::{ExtraField, LineForm, extra_field::Source};

use super::LoggedPlace;
use super::fields::Fields;
use super::filter::TrafficKind;
use crate::wrappers;

const HEADER_BYTES: usize = 256;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum LoggedValue {
    Format(String),
    Literal(String),
    Number(u32),
}

impl LoggedValue {
    pub(super) fn format(&self) -> String {
        match self {
            Self::Format(format) => format.clone(),
            Self::Literal(text) => wrappers::literal(text),
            Self::Number(number) => number.to_string(),
        }
    }

    /// Returns the name of the logged request header if it may contain arbitrary bytes.
    pub(super) fn request_header(&self) -> Option<String> {
        let Self::Format(format) = self else {
            return None;
        };
        if format.starts_with("%PATH(") {
            return Some(":path".to_owned());
        }
        let (name, _) = format.strip_prefix("%REQ(")?.split_once(')')?;
        // Envoy rejects requests with a non-ASCII method or host, so these values are always ASCII.
        (!name.starts_with(':')).then(|| name.to_ascii_lowercase())
    }

    pub(super) fn is_of_answer(&self) -> bool {
        matches!(self, Self::Format(format) if format.starts_with("%RESP("))
    }
}

pub(super) struct LogLine {
    facts: BTreeMap<Fact, LoggedValue>,
    traffic: TrafficKind,
}

impl LogLine {
    pub(super) fn new(
        fields: Fields,
        traffic: TrafficKind,
        place: LoggedPlace<'_>,
        gateway: &str,
    ) -> Self {
        let LoggedPlace {
            protocol,
            port,
            listener,
            route,
            backend,
        } = place;
        let format = |format: &str| LoggedValue::Format(format.to_owned());
        let mut facts: BTreeMap<Fact, LoggedValue> = fields
            .iter()
            .map(|(fact, value)| (*fact, format(value)))
            .collect();
        let known = [
            (Fact::Backend, backend),
            (Fact::Gateway, Some(gateway)),
            (Fact::Listener, listener),
            (Fact::Protocol, Some(protocol)),
            (Fact::Route, route),
        ];
        for (fact, text) in known {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                // An Envoy format takes precedence, because it is more precise than a fixed text.
                let literal = || LoggedValue::Literal(text.to_owned());
                facts.entry(fact).or_insert_with(literal);
            }
        }
        facts.insert(Fact::Port, LoggedValue::Number(port));
        Self { facts, traffic }
    }

    pub(super) fn object(&self, form: &LineForm) -> BTreeMap<String, LoggedValue> {
        let LineForm {
            text: _,
            facts,
            extra,
        } = form;
        let is_chosen = |fact: Fact| {
            facts.is_empty() || log_facts::is_mandatory(fact) || facts.contains(&i32::from(fact))
        };
        let chosen = self.facts.iter().filter(|(fact, _)| is_chosen(**fact));
        let mut fields: BTreeMap<String, LoggedValue> = chosen
            .map(|(fact, value)| (log_facts::name(*fact), value.clone()))
            .collect();
        for ExtraField { name, source } in extra {
            let value = source.as_ref().and_then(|source| self.extra(source));
            if let Some(value) = value.filter(|_| log_facts::is_free_name(name)) {
                fields.insert(name.clone(), value);
            }
        }
        fields
    }

    /// Yields values in column order. A value is `None` if it is unknown or could break the line
    /// format.
    pub(super) fn text<'l>(
        &'l self,
        form: &'l LineForm,
    ) -> impl Iterator<Item = Option<&'l LoggedValue>> {
        form.facts().map(|fact| {
            let value = self.facts.get(&fact);
            value.filter(|_| log_facts::is_plain(fact))
        })
    }

    /// Returns `None` if Envoy would reject the field, it may contain a secret, or the traffic has
    /// no headers.
    fn extra(&self, source: &Source) -> Option<LoggedValue> {
        let (operator, header) = match source {
            Source::RequestHeader(header) => ("REQ", header),
            Source::ResponseHeader(header) => ("RESP", header),
            Source::Literal(text) => return Some(LoggedValue::Literal(text.clone())),
        };
        let format = || LoggedValue::Format(format!("%{operator}({header}):{HEADER_BYTES}%"));
        self.has_header(header).then(format)
    }

    pub(super) fn has_header(&self, name: &str) -> bool {
        self.traffic == TrafficKind::Requests && log_facts::is_loggable(name)
    }
}
