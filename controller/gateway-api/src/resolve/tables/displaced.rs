//! Records requests and connections that a valid route loses because other routes or listeners take
//! precedence.
//!
//! Such a route has no error, so it is still accepted. Messages never reveal objects in other
//! namespaces.

use std::collections::{BTreeMap, BTreeSet};

use crate::resolve::context::Problems;
use crate::resolve::routes::Routes;
use crate::status::{Grounds, Reason};

/// Maximum number of losses that a message describes.
const MAX_SHOWN: usize = 4;

/// Index of a route, and index of one of its parents.
pub(crate) type ParentPlace = (usize, usize);

/// For each route and parent, the lost requests and connections.
#[derive(Debug, Default)]
pub(crate) struct Displaced(BTreeMap<ParentPlace, BTreeSet<Grounds>>);

impl Displaced {
    /// Records that a route loses requests or connections that it would get through `parent`.
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

    /// Reports the losses of each route as problems. Returns a reason and a message for each route
    /// and parent.
    pub(crate) fn tell(
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

    /// Combines all losses of a route through one parent into one reason and message.
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

/// Names the winning route to the author of the route `loser`. Both routes are given by index.
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
