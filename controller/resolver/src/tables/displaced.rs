//! Traffic that valid routes lose to other routes or listeners. The routes stay accepted. Messages
//! never reveal objects in other namespaces.

use std::collections::{BTreeMap, BTreeSet};

use crate::context::Problems;
use crate::routes::Routes;
use sesame_kinds::status::{Grounds, Reason};

/// Maximum number of losses listed in one message.
const MAX_SHOWN: usize = 4;

/// Route index and parent index.
pub(crate) type ParentPlace = (usize, usize);

#[derive(Debug, Default)]
pub(crate) struct Displaced(BTreeMap<ParentPlace, BTreeSet<Grounds>>);

impl Displaced {
    pub(super) fn add(
        &mut self,
        route: usize,
        parent: Option<usize>,
        reason: Reason,
        message: String,
    ) {
        let key = (route, parent.unwrap_or_default());
        self.0.entry(key).or_default().insert((reason, message));
    }

    pub(crate) fn report(
        &self,
        routes: &Routes<'_>,
        problems: &mut Problems,
    ) -> BTreeMap<ParentPlace, Grounds> {
        let messages = self.messages();
        for ((route, _), (_, message)) in &messages {
            if let Some(route) = routes.get(*route) {
                problems.add(route.object.clone(), message.clone());
            }
        }
        messages
    }

    fn messages(&self) -> BTreeMap<ParentPlace, Grounds> {
        let one = |losses: &BTreeSet<Grounds>| {
            let (reason, _) = losses.first()?;
            let messages: Vec<&str> = losses.iter().map(|(_, message)| message.as_str()).collect();
            let shown = messages.get(..MAX_SHOWN).unwrap_or(&messages).join("; ");
            let message = match messages.len().saturating_sub(MAX_SHOWN) {
                0 => shown,
                more => format!("{shown}; and {more} more"),
            };
            Some((*reason, message))
        };
        self.0
            .iter()
            .filter_map(|(place, losses)| Some((*place, one(losses)?)))
            .collect()
    }
}

/// Names the winning route for the author of `loser`. Both arguments are route indices.
pub(super) fn winner(winner: usize, loser: usize, routes: &Routes<'_>) -> String {
    let (Some(winner), Some(loser)) = (routes.get(winner), routes.get(loser)) else {
        return "another route".to_owned();
    };
    if winner.object.name.namespace == loser.object.name.namespace {
        winner.object.to_string()
    } else {
        format!("a {} in another namespace", winner.object.kind)
    }
}
