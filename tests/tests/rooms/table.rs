//! Reads and writes the table of rooms in `ARCHITECTURE.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const HEADER: &str = "| room | what it is for | must never | may import |";
/// Marks an import that closes a cycle.
const CYCLE: &str = "(cycle)";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// The first module names the room.
    pub(crate) modules: Vec<String>,
    pub(crate) purpose: String,
    pub(crate) never: String,
    /// Keyed by short room name, `lib` for the crate root, or `sesame-…`. The value is true if the
    /// import is marked as closing a cycle.
    pub(crate) may_import: BTreeMap<String, bool>,
}

/// Empty if there is no table.
pub(crate) fn text(text: &str) -> &str {
    let table = text.find(HEADER).map_or("", |start| &text[start..]);
    table.find("\n\n").map_or(table, |end| &table[..=end])
}

pub(crate) fn read(text: &str) -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::new();
    for line in self::text(text).lines().skip(2) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [room, purpose, never, imports] = cells[..] else {
            panic!("ARCHITECTURE.md: expected four cells: {line}");
        };
        let row = Row {
            modules: names(room).map(|(name, _)| name).collect(),
            purpose: purpose.to_owned(),
            never: never.to_owned(),
            may_import: names(imports).collect(),
        };
        let name = row.modules[0].clone();
        assert!(
            rows.insert(name, row).is_none(),
            "ARCHITECTURE.md: duplicate room {room}"
        );
    }
    rows
}

/// Returns names, with `true` for marked names.
fn names(cell: &str) -> impl Iterator<Item = (String, bool)> {
    let names = cell.split(',').map(str::trim).filter(|name| *name != "–");
    names.map(|name| {
        let plain = name.trim_end_matches(CYCLE).trim().trim_matches('`');
        (plain.to_owned(), name.ends_with(CYCLE))
    })
}

pub(crate) fn write(
    arrows: &BTreeMap<String, BTreeMap<String, bool>>,
    rows: &BTreeMap<String, Row>,
) -> String {
    let mut text = format!("{HEADER}\n|---|---|---|---|\n");
    for (room, imports) in arrows {
        let Row {
            modules,
            purpose,
            never,
            ..
        } = rows.get(room).cloned().unwrap_or_else(|| Row {
            modules: vec![room.clone()],
            ..Row::default()
        });
        let modules = modules.iter().map(|name| format!("`{name}`"));
        let imports = imports
            .iter()
            .map(|(name, cycle)| format!("`{name}`{}", if *cycle { " (cycle)" } else { "" }));
        let (modules, mut imports) = (list(modules), list(imports));
        if imports.is_empty() {
            "–".clone_into(&mut imports);
        }
        let _ = writeln!(text, "| {modules} | {purpose} | {never} | {imports} |");
    }
    text
}

fn list(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// Returns sets of rooms that all import each other, directly or indirectly.
pub(crate) fn cycles(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = arrows
        .keys()
        .map(|room| (room, reachable(arrows, room)))
        .collect();
    let sets: BTreeSet<BTreeSet<String>> = arrows
        .keys()
        .filter(|room| reached[room].contains(room))
        .map(|room| {
            let both = reached[room]
                .iter()
                .filter(|other| reached[*other].contains(room));
            both.map(|other| (*other).clone()).collect()
        })
        .collect();
    sets.into_iter().collect()
}

fn reachable<'a>(
    arrows: &'a BTreeMap<String, BTreeSet<String>>,
    from: &String,
) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&String> = arrows.get(from).into_iter().flatten().collect();
    while let Some(room) = open.pop() {
        if reached.insert(room) {
            open.extend(arrows.get(room).into_iter().flatten());
        }
    }
    reached
}
