//! Checks the table of rooms (module groups) in `ARCHITECTURE.md`: no room may import from rooms
//! that its row does not list. Rooms are crate roots and top-level modules, without test code.
//! `make regenerate` updates the table.

mod dependencies;
mod modules;
mod shape;
mod sources;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sesame_tests::generated::is_requested;

use crate::modules::{ModulePath, Modules};
use crate::table::Row;

/// Names without `sesame-`, and source directories.
const CRATES: [(&str, &str); 10] = [
    ("agent", "agent/src"),
    ("backoff", "proto/backoff/src"),
    ("controller", "controller/src"),
    ("files", "proto/files/src"),
    ("gateway-api", "controller/gateway-api/src"),
    ("http-server", "controller/http-server/src"),
    ("proto", "proto/src"),
    ("published", "controller/published/src"),
    ("render", "agent/render/src"),
    ("spans", "controller/spans/src"),
];
/// Each child of this module that has children is a separate room.
const DIVIDED: [&str; 2] = ["gateway-api", "resolve"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

fn modules() -> Modules {
    let mut modules = Modules::default();
    for (name, source) in CRATES {
        modules.read(name, &workspace().join(source));
    }
    modules
}

fn rooms(modules: &Modules, rows: &BTreeMap<String, Row>) -> BTreeMap<ModulePath, String> {
    let room_of = |path: &ModulePath| {
        let is_divided = path.len() > 2 && path[..2] == DIVIDED;
        let depth = if is_divided && modules.has_children(&path[..3]) {
            3
        } else {
            2
        };
        let own = path[..depth.min(path.len())].join("/");
        let shared = rows.iter().find(|(_, row)| row.modules.contains(&own));
        (path.clone(), shared.map_or(own, |(room, _)| room.clone()))
    };
    modules.0.keys().map(room_of).collect()
}

fn arrows(
    modules: &Modules,
    rooms: &BTreeMap<ModulePath, String>,
) -> BTreeMap<String, BTreeMap<String, usize>> {
    let mut arrows: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for (path, module) in &modules.0 {
        let from = rooms[path].clone();
        let found = arrows.entry(from.clone()).or_default();
        // A re-export counts as an import from the room that defines the item.
        let is_door = path.len() == 1 || path[..] == DIVIDED;
        let exports = module.exports.values().filter(|_| !is_door);
        for import in module.imports.iter().chain(exports) {
            let Some(target) = modules.target(import) else {
                continue;
            };
            let to = if target[0] == path[0] {
                rooms[&target].clone()
            } else {
                format!("sesame-{}", target[0])
            };
            if to != from {
                *found.entry(to).or_default() += 1;
            }
        }
    }
    arrows
}

/// For each cycle within a crate, the edge with the fewest imports.
fn closing(arrows: &BTreeMap<String, BTreeMap<String, usize>>) -> BTreeSet<(String, String)> {
    let mut left: BTreeMap<String, BTreeSet<String>> = arrows
        .iter()
        .map(|(from, to)| (from.clone(), inside(to).cloned().collect()))
        .collect();
    let mut closing = BTreeSet::new();
    while let Some(cycle) = table::cycles(&left).into_iter().next() {
        let thinnest = cycle
            .iter()
            .flat_map(|from| left[from].iter().map(move |to| (from, to)))
            .filter(|(_, to)| cycle.contains(*to))
            .min_by_key(|(from, to)| arrows[*from][*to])
            .map(|(from, to)| (from.clone(), to.clone()))
            .expect("a cycle has arrows");
        left.get_mut(&thinnest.0)
            .expect("a room of it")
            .remove(&thinnest.1);
        closing.insert(thinnest);
    }
    closing
}

/// Cargo forbids cycles between crates.
fn inside(imports: &BTreeMap<String, usize>) -> impl Iterator<Item = &String> {
    imports.keys().filter(|to| !to.starts_with("sesame-"))
}

fn short(room: &str) -> &str {
    room.split_once('/').map_or_else(
        || {
            if room.starts_with("sesame-") {
                room
            } else {
                "lib"
            }
        },
        |(_, name)| name,
    )
}

#[test]
fn rooms_import_only_allowed_rooms_without_cycles() {
    let modules = modules();
    let page = workspace().join("ARCHITECTURE.md");
    let mut text = std::fs::read_to_string(&page).unwrap();
    let mut rows = table::read(&text);
    let arrows = arrows(&modules, &rooms(&modules, &rows));
    let now = true_table(&arrows, &rows);
    if is_requested() {
        text = text.replacen(table::text(&text), &now, 1);
        rows = table::read(&text);
        std::fs::write(page, text).unwrap();
    }

    let mut problems = Vec::new();
    for name in rows.values().flat_map(|row| &row.modules) {
        let path: ModulePath = name.split('/').map(str::to_owned).collect();
        if !modules.0.contains_key(&path) {
            problems.push(format!("the table lists {name}, which is not a module"));
        }
    }
    for (from, imports) in &arrows {
        let Some(row) = rows.get(from) else {
            problems.push(format!("{from} is not in the table"));
            continue;
        };
        let Row {
            modules: _,
            purpose,
            never,
            may_import,
        } = row;
        if purpose.is_empty() || never.is_empty() {
            problems.push(format!(
                "{from}: state its purpose, and what it must never do"
            ));
        }
        for to in imports
            .keys()
            .filter(|to| !may_import.contains_key(short(to)))
        {
            problems.push(format!("{from} must not import {to}"));
        }
        for (to, _) in may_import.iter().filter(|(_, cycle)| **cycle) {
            if !imports.keys().any(|room| short(room) == to) {
                problems.push(format!(
                    "{from} no longer imports {to}: remove it and its \"(cycle)\" mark"
                ));
            }
        }
    }
    // Marked imports are known to close a cycle.
    let marked = |from: &String, to: &str| {
        rows.get(from)
            .is_some_and(|row| row.may_import.get(short(to)) == Some(&true))
    };
    let unmarked = arrows
        .iter()
        .map(|(from, imports)| {
            let right = inside(imports).filter(|to| !marked(from, to)).cloned();
            (from.clone(), right.collect())
        })
        .collect();
    for cycle in table::cycles(&unmarked) {
        let rooms: Vec<String> = cycle.into_iter().collect();
        problems.push(format!(
            "these rooms import each other in a cycle: {}",
            rooms.join(", ")
        ));
    }

    if !problems.is_empty() {
        println!("The table that `make regenerate` would write, for review:\n\n{now}");
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Only paths relative to the repository root are checked.
#[test]
fn architecture_paths_exist() {
    let root = workspace();
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let words = text.split('`').skip(1).step_by(2);
    let is_path = |word: &&str| {
        let top = word.split_once('/').map_or("", |(top, _)| top);
        let rest = word.rsplit('/').next().unwrap_or_default();
        // Room names look like paths without a file extension.
        root.join(top).is_dir() && !top.is_empty() && (rest.contains('.') || rest.is_empty())
    };
    let missing: Vec<&str> = words
        .filter(is_path)
        .filter(|path| !root.join(path).exists())
        .collect();
    assert!(
        missing.is_empty(),
        "ARCHITECTURE.md names paths that do not exist: {missing:?}"
    );
}

fn true_table(
    arrows: &BTreeMap<String, BTreeMap<String, usize>>,
    rows: &BTreeMap<String, Row>,
) -> String {
    let closing = closing(arrows);
    let cells = arrows.iter().map(|(from, imports)| {
        let cells = imports.keys().map(|to| {
            let cycle = closing.contains(&(from.clone(), to.clone()));
            (short(to).to_owned(), cycle)
        });
        (from.clone(), cells.collect())
    });
    table::write(&cells.collect(), rows)
}
