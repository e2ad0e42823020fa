//! Formats the result: files, and the report as a table, as JSON or as Markdown.
//!
//! Input is untrusted, so control characters are escaped. Reports contain field names and fixed
//! sentences, and no values that might be secret.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{Table, presets};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use sesame_kinds::world::Kind;
use sesame_proto::terminal::plain;

use super::Conversion;
use super::draft::ObjectId;

/// Fields that people write first, in this order. All others follow alphabetically.
const FIRST: &[&str] = &[
    "apiVersion",
    "group",
    "kind",
    "metadata",
    "type",
    "name",
    "namespace",
    "targetRefs",
    "parentRefs",
    "hostnames",
    "protocol",
    "port",
    "action",
    "matches",
    "filters",
];

const COLUMN_GAP: u16 = 3;
const COMMENT_COLUMNS: usize = 100;

/// Returns the names and content of the files, one for each kind.
pub fn files(conversion: &Conversion) -> Result<BTreeMap<String, String>, String> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for object in &conversion.objects {
        let text = |name: &str| object[name].as_str().unwrap_or_default();
        let kind = Kind::find(text("apiVersion"), text("kind"));
        let plural = kind.map_or("objects", Kind::plural).to_ascii_lowercase();
        let yaml =
            serde_saphyr::to_string(&InUsualOrder(object)).map_err(|error| error.to_string())?;
        let file = files.entry(format!("{plural}.yaml")).or_default();
        if !file.is_empty() {
            file.push_str("---\n");
        }
        let id = ObjectId::of(object);
        for comment in conversion.comments.get(&id).into_iter().flatten() {
            push_comment(file, &plain(comment));
        }
        file.push_str(&yaml);
    }
    Ok(files)
}

/// Adds a comment in lines of at most 100 columns, unless a word is longer.
fn push_comment(file: &mut String, text: &str) {
    let mut column = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count() + 1;
        if column == 0 || column + width > COMMENT_COLUMNS {
            file.push_str(if column == 0 { "#" } else { "\n#" });
            column = 1;
        }
        file.push(' ');
        file.push_str(word);
        column += width;
    }
    file.push('\n');
}

/// Serializes fields in the order in which people write them.
struct InUsualOrder<'v>(&'v Value);

impl Serialize for InUsualOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => {
                let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
                let rank = |name: &str| FIRST.iter().position(|first| *first == name);
                fields.sort_by_key(|(name, _)| (rank(name).unwrap_or(FIRST.len()), *name));
                serializer.collect_map(fields.into_iter().map(|(name, it)| (name, Self(it))))
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Self)),
            other => other.serialize(serializer),
        }
    }
}

/// Returns the report as JSON: verdicts by object, and the objects that are left out.
pub fn as_json(conversion: &Conversion) -> Value {
    let Conversion {
        objects: _,
        comments: _,
        rows,
        stopped,
        unused,
    } = conversion;
    let stopped: Vec<Value> = stopped
        .iter()
        .map(|(object, reason)| json!({"object": object, "reason": reason}))
        .collect();
    json!({
        "complete": conversion.is_complete(),
        "leftOut": stopped,
        "objects": rows,
        "unusedAcceptLoss": unused,
    })
}

/// Returns the report as tables for a terminal.
pub fn as_table(conversion: &Conversion) -> String {
    let mut text = String::new();
    let heading = ["FIELD", "VERDICT", "DETAIL"];
    for object in &conversion.rows {
        text.push_str(&plain(&object.object.to_string()));
        text.push('\n');
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(heading);
        for row in &object.rows {
            let detail = row.verdict.to_string();
            let cells = [row.path.as_str(), row.verdict.word(), &detail];
            table.add_row(cells.map(plain));
        }
        for column in table.column_iter_mut() {
            column.set_padding((2, COLUMN_GAP));
        }
        for line in table.lines() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text.push_str(&endings(conversion, "", plain));
    text
}

/// Returns the report as a Markdown document.
pub fn as_markdown(conversion: &Conversion) -> String {
    let mut text = "# Conversion\n".to_owned();
    for object in &conversion.rows {
        let _ = write!(
            text,
            "\n## {}\n\n| field | verdict | detail |\n|---|---|---|\n",
            markdown(&object.object.to_string())
        );
        for row in &object.rows {
            let detail = markdown(&row.verdict.to_string());
            let path = markdown(&row.path);
            let _ = writeln!(text, "| `{path}` | {} | {detail} |", row.verdict.word());
        }
    }
    text.push('\n');
    text.push_str(&endings(conversion, "- ", markdown));
    text
}

/// Lists the objects that were left out, and the flags that accept the losses.
fn endings(conversion: &Conversion, bullet: &str, escape: fn(&str) -> String) -> String {
    let mut text = String::new();
    for (object, reason) in &conversion.stopped {
        let line = escape(&format!("{object} left out: {reason}"));
        let _ = writeln!(text, "{bullet}{line}");
    }
    for object in &conversion.rows {
        for row in object.rows.iter().filter(|row| row.verdict.stops()) {
            let (name, object) = (row.accepted_as(), &object.object);
            let line = format!("to convert {object} without {name}: --accept-loss {object}:{name}");
            let _ = writeln!(text, "{bullet}{}", escape(&line));
        }
    }
    for name in &conversion.unused {
        let line = escape(&format!("--accept-loss {name} matches no refused field"));
        let _ = writeln!(text, "{bullet}{line}");
    }
    text
}

fn markdown(text: &str) -> String {
    plain(text)
        .replace('|', "\\|")
        .replace('`', "'")
        .replace('<', "&lt;")
}
