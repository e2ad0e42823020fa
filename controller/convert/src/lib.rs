//! Converts other gateways' objects into Gateway API objects and Sesame's kinds.
//!
//! The conversion is a pure function of values. Each field gets a verdict. If a field that protects
//! something cannot be converted, its object and the objects that it protects are left out, unless
//! the caller accepts the loss. Secrets are never read, only referred to.

#![cfg_attr(test, allow(clippy::too_many_lines))]

mod check;
mod contour;

mod draft;
mod envoy_gateway;
mod fields;
mod ingress_nginx;
mod istio;
mod report;
mod routing;
mod stops;
mod taking;
#[cfg(test)]
mod tests;
mod traefik;
mod values;
mod verdicts;

use std::collections::BTreeMap;

use serde_json::Value;

use self::draft::{Draft, ObjectId, ObjectRows};
pub use self::report::{as_json, as_markdown, as_table, files};

/// A source format, with its name on the command line.
pub struct SourceFormat {
    /// Name on the command line.
    pub name: &'static str,
    convert: fn(&mut Draft),
}

/// All source formats. A new format needs one entry.
pub const FORMATS: &[SourceFormat] = &[
    SourceFormat {
        name: "envoy-gateway",
        convert: envoy_gateway::convert,
    },
    SourceFormat {
        name: "ingress-nginx",
        convert: ingress_nginx::convert,
    },
    SourceFormat {
        name: "contour",
        convert: contour::convert,
    },
    SourceFormat {
        name: "istio",
        convert: istio::convert,
    },
    SourceFormat {
        name: "traefik",
        convert: traefik::convert,
    },
];

/// Result of a conversion.
#[derive(Debug, Default)]
pub struct Conversion {
    /// Objects to apply, sorted by kind, namespace and name.
    pub(crate) objects: Vec<Value>,
    /// Differences from the input, for readers of the files.
    pub(crate) comments: BTreeMap<ObjectId, Vec<String>>,
    /// The verdicts on each input object, sorted like `objects`.
    pub(crate) rows: Vec<ObjectRows>,
    /// Objects that were left out because a protection was refused, each with a reason.
    pub(crate) stopped: Vec<(ObjectId, String)>,
    /// Accepted losses that matched no refused field.
    pub(crate) unused: Vec<String>,
}

impl Conversion {
    /// Returns true if nothing was left out.
    pub fn is_complete(&self) -> bool {
        let mut rows = self.rows.iter().flat_map(|object| &object.rows);
        self.stopped.is_empty() && !rows.any(|row| row.verdict.stops())
    }
}

/// Converts objects. `accepted` are names of objects and fields whose loss the caller accepts.
pub fn convert(format: &SourceFormat, objects: &[Value], accepted: &[String]) -> Conversion {
    let mut draft = Draft::new(objects);
    (format.convert)(&mut draft);
    stops::finish(draft, accepted)
}
