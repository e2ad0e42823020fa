//! Checks that Istio and Traefik share, because Sesame cannot serve their objects directly.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sesame_kinds::decode::{DecodeLimits, parse_untyped};

use super::super::Conversion;
use super::super::verdicts::FieldVerdict;
use super::equivalence::{differences, from, resolved, shared_defaults};
use super::fields::{is_generic, table, verdict};
use super::parse;
use super::schemas::set;

/// A source, its objects, and values for all their fields.
pub(super) struct Source {
    pub(super) format: &'static str,
    /// Gateway of the output.
    pub(super) class: &'static str,
    pub(super) objects: &'static str,
    /// Lines such as `Middleware/headers spec.headers.frameDeny: true`.
    pub(super) fields: &'static str,
}

/// An object, a field, and its value.
type FieldCase = (String, String, Value);

impl Source {
    fn cases(&self) -> Vec<FieldCase> {
        let lines = self
            .fields
            .lines()
            .filter(|it| !it.is_empty() && !it.starts_with('#'));
        let cases = lines.map(|line| {
            let (object, rest) = line.split_once(' ').expect("an object");
            let (field, value) = rest.split_once(": ").expect("a field");
            let value = parse_untyped(value, &DecodeLimits::default()).expect("a value");
            (object.to_owned(), field.to_owned(), value)
        });
        cases.collect()
    }

    /// Returns the objects with one more field.
    fn with(&self, (object, field, value): &FieldCase) -> Vec<Value> {
        let mut objects = parse(self.objects);
        let (kind, name) = object.split_once('/').expect("a name");
        let is_named = |it: &&mut Value| it["kind"] == kind && it["metadata"]["name"] == name;
        let target = objects.iter_mut().find(is_named);
        let target = target.unwrap_or_else(|| panic!("{object} is not in the example"));
        if let Some(annotation) = field.strip_prefix("annotation ") {
            target["metadata"]["annotations"][annotation] = value.clone();
        } else {
            set(target, field, value.clone());
        }
        objects
    }

    /// Returns the verdicts on all fields.
    fn verdicts(&self) -> Vec<(String, &'static str)> {
        let mut generic = Vec::new();
        let cases = self.cases().into_iter().map(|case| {
            let conversion = from(self.format, &self.with(&case), &[]);
            let (object, field, _) = &case;
            let field = match field.strip_prefix("annotation ") {
                Some(name) => format!("metadata.annotations.{name}"),
                None => field.clone(),
            };
            let (kind, name) = object.split_once('/').expect("a name");
            let ids = conversion.rows.iter().map(|it| it.object.clone());
            let id = ids
                .into_iter()
                .find(|it| it.kind.split('.').next() == Some(kind) && it.name == name);
            let id = id.unwrap_or_else(|| panic!("{object} has no verdict"));
            let below = || {
                let mut objects = conversion.rows.iter();
                let rows = &objects.find(|it| it.object == id)?.rows;
                rows.iter().find(|it| it.path.starts_with(&field))
            };
            let row = verdict(&conversion, &id.to_string(), &field).or_else(below);
            let row = row.unwrap_or_else(|| panic!("{object} {field} has no verdict"));
            if is_generic(row) {
                generic.push(format!("{object} {field}"));
            }
            (format!("{kind} {}", row.accepted_as()), row.verdict.word())
        });
        let verdicts = cases.collect();
        assert_eq!(generic, Vec::<String>::new());
        verdicts
    }

    pub(super) fn table(&self, title: &str) -> String {
        table(title, self.verdicts())
    }

    pub(super) fn every_field_has_a_verdict(&self, least: usize) {
        let verdicts = self.verdicts();
        assert!(verdicts.len() >= least, "{}", verdicts.len());
    }

    /// Adds an unknown field to each mapping of the example in turn. It must stop the routes, unless
    /// the mapping cannot protect anything, or has any fields.
    pub(super) fn unknown_field_has_a_verdict(&self, tuning: &[&str]) {
        let objects = parse(self.objects);
        let mut silent = Vec::new();
        for (index, object) in objects.iter().enumerate() {
            for path in mappings(object, "/spec") {
                let mut changed = objects.clone();
                let target = changed[index].pointer_mut(&path).expect("a mapping");
                target["newProtection"] = json!({"mode": "Strict"});
                let conversion = from(self.format, &changed, &[]);
                let full = format!("{}{path}", object["kind"].as_str().unwrap_or_default());
                let is_tuning = tuning.iter().any(|it| full.contains(it));
                if conversion.is_complete() && !is_tuning && object["apiVersion"] != "v1" {
                    silent.push(format!("{} {path}", object["kind"]));
                }
            }
        }
        assert_eq!(silent, Vec::<String>::new());
    }

    fn resolved(&self, conversion: &[Value]) -> sesame_proto::schema::Snapshot {
        let own = parse(self.objects).into_iter();
        let own = own.filter(|it| it["apiVersion"] == "v1" || it["kind"] == "EndpointSlice");
        let objects = shared_defaults().into_iter().chain(own);
        let objects: Vec<Value> = objects.chain(conversion.iter().cloned()).collect();
        resolved(self.class, &objects).expect("a Gateway")
    }

    /// Removes each protection from the output, and from the input. The comparison must find each.
    pub(super) fn finds_every_lost_protection(&self, inputs: &[&str]) {
        let conversion = from(self.format, &parse(self.objects), &[]);
        let report = super::super::as_table(&conversion);
        assert!(conversion.is_complete(), "{report}");
        let before = self.resolved(&conversion.objects);
        let mut count = 0;
        for (index, object) in conversion.objects.iter().enumerate() {
            let kind = object["kind"].as_str().unwrap_or_default();
            let protects = |part: &str| match kind {
                "AccessPolicy" => part != "targetRefs",
                "TrafficPolicy" => ["rateLimits", "requestBody"].contains(&part),
                _ => false,
            };
            let parts = object["spec"].as_object().expect("a spec").keys();
            for part in parts.filter(|it| protects(it)) {
                let mut objects = conversion.objects.clone();
                let spec = objects[index]["spec"].as_object_mut().expect("a spec");
                spec.remove(part);
                if spec.len() == 1 {
                    objects.remove(index);
                }
                let found = differences(&before, &self.resolved(&objects));
                assert!(!found.is_empty(), "{part} of {object}");
                count += 1;
            }
        }
        assert!(count > 3, "{count}");
        let objects = parse(self.objects);
        for (index, object) in objects.iter().enumerate() {
            if !inputs.iter().any(|kind| object["kind"] == **kind) {
                continue;
            }
            for path in leaves(object, "/spec") {
                let mut changed = objects.clone();
                let (parent, name) = path.rsplit_once('/').expect("a path");
                let parent = changed[index].pointer_mut(parent).expect("a parent");
                match parent {
                    Value::Object(fields) => drop(fields.remove(name)),
                    Value::Array(items) => drop(items.remove(name.parse().expect("an index"))),
                    _ => {}
                }
                let after = from(self.format, &changed, &[]);
                let is_same = after.is_complete() && after.objects == conversion.objects;
                let field = path.trim_start_matches('/').replace('/', ".");
                let rows = conversion.rows.iter().flat_map(|it| &it.rows);
                let mut rows = rows.filter(|row| plain(&row.path) == field);
                let carried = rows.any(|row| matches!(row.verdict, FieldVerdict::Carried { .. }));
                assert!(
                    !is_same || !carried,
                    "{} {path} is lost silently",
                    object["kind"]
                );
            }
        }
    }
}

fn plain(path: &str) -> String {
    path.replace('[', ".").replace(']', "")
}

/// Returns the paths of all mappings.
fn mappings(object: &Value, at: &str) -> Vec<String> {
    let Some(value) = object.pointer(at) else {
        return Vec::new();
    };
    let below = |name: String| mappings(object, &format!("{at}/{name}"));
    match value {
        Value::Object(fields) => {
            let names = fields
                .keys()
                .map(|it| it.replace('~', "~0").replace('/', "~1"));
            let below = names.flat_map(below);
            std::iter::once(at.to_owned()).chain(below).collect()
        }
        Value::Array(items) => (0..items.len())
            .flat_map(|it| below(it.to_string()))
            .collect(),
        _ => Vec::new(),
    }
}

/// Returns the paths of all scalar values.
fn leaves(object: &Value, at: &str) -> Vec<String> {
    let Some(value) = object.pointer(at) else {
        return Vec::new();
    };
    let below = |name: String| leaves(object, &format!("{at}/{name}"));
    match value {
        Value::Object(fields) => fields.keys().cloned().flat_map(below).collect(),
        Value::Array(items) => (0..items.len())
            .flat_map(|it| below(it.to_string()))
            .collect(),
        _ => vec![at.to_owned()],
    }
}

/// Returns objects read, and verdicts by kind, for each example.
pub(super) fn summary(format: &str, examples: &str) -> String {
    let mut text = String::new();
    for example in examples.split("# Case: ").skip(1) {
        let (name, objects) = example.split_once('\n').expect("a title");
        let objects = parse(objects);
        let conversion: Conversion = from(format, &objects, &[]);
        let rows = conversion.rows.iter().flat_map(|it| &it.rows);
        let mut counts = [0; 4];
        for row in rows {
            counts[match row.verdict {
                FieldVerdict::Carried { .. } => 0,
                FieldVerdict::Differs { .. } => 1,
                FieldVerdict::NotNeeded { .. } => 2,
                FieldVerdict::Refused(_) => 3,
            }] += 1;
        }
        let [carried, differs, unneeded, refused] = counts;
        writeln!(
            text,
            "{name}: {} read, {} written; {carried} carried, {differs} with a difference, {unneeded} \
             not needed, {refused} refused",
            objects.len(),
            conversion.objects.len(),
        )
        .expect("memory");
    }
    text
}
