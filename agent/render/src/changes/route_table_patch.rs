//! Patches route tables, and reuses the rendered form of unchanged virtual hosts.
//!
//! Compares virtual hosts in encoded form, because decoding thousands would dominate the cost.
//! Never guess: return `None` if anything is unexpected.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sesame_proto::encoded::EncodedTable;
use sesame_proto::wire::{append, contents};

use crate::context::RenderContext;
use crate::http::route_tables::{self, MAX_TABLE_BYTES, VIRTUAL_HOSTS, check_domain};
use crate::rendered::{RenderProblems, Resource};

/// `rendered` must be the rendering of `old` and contain no problems.
pub(super) fn render(
    rendered: &[Resource],
    old: &[EncodedTable],
    new: &[EncodedTable],
    context: &RenderContext<'_>,
) -> Option<Arc<[Resource]>> {
    if old.len() != rendered.len() || old.len() != new.len() {
        return None;
    }
    let tables = old.iter().zip(new).zip(rendered);
    let table = |((old, new), rendered): ((&EncodedTable, &EncodedTable), &Resource)| {
        if old.name != new.name || old.name != rendered.name {
            None
        } else if old.hosts == new.hosts {
            Some(rendered.clone())
        } else {
            let bytes = table(rendered, old, new, context)?.into();
            let name = rendered.name.clone();
            Some(Resource { name, bytes })
        }
    };
    let tables: Arc<[Resource]> = tables.map(table).collect::<Option<_>>()?;
    let size: usize = tables.iter().map(|table| table.bytes.len()).sum();
    // Only a full rendering reports the virtual hosts that exceed the limit.
    (size <= MAX_TABLE_BYTES).then_some(tables)
}

fn table(
    rendered: &Resource,
    old: &EncodedTable,
    new: &EncodedTable,
    context: &RenderContext<'_>,
) -> Option<Vec<u8>> {
    let table = new.name.as_str();
    let mut bytes = route_tables::head(table, context);
    let hosts = rendered.bytes.strip_prefix(bytes.as_slice())?;
    let kept = contents(hosts, VIRTUAL_HOSTS)?;
    if kept.len() != old.hosts.len() {
        return None;
    }
    // Most changes keep all domains in place, which makes the domain checks unnecessary.
    let in_place = old.domains().eq(new.domains());
    let places: HashMap<&str, usize> = if in_place {
        HashMap::new()
    } else {
        old.domains().zip(0..).collect()
    };
    // Leave room for growth, because a reallocation would copy everything again.
    bytes.reserve(rendered.bytes.len() + rendered.bytes.len() / 64);
    let mut seen = BTreeSet::new();
    let mut problems = RenderProblems::default();
    let mut host = Vec::new();
    for (place, new) in new.hosts.iter().enumerate() {
        let place = if in_place {
            Some(place)
        } else {
            check_domain(new.domain(), &mut seen).ok()?;
            places.get(new.domain()).copied()
        };
        match place.and_then(|place| Some((old.hosts.get(place)?, kept.get(place)?))) {
            Some((old, kept)) if old == new => append(VIRTUAL_HOSTS, kept, &mut bytes),
            _ => {
                host.clear();
                let virtual_host = new.decoded();
                route_tables::render_host(&virtual_host, table, context, &mut problems, &mut host);
                append(VIRTUAL_HOSTS, &host, &mut bytes);
            }
        }
    }
    problems.is_empty().then_some(bytes)
}
