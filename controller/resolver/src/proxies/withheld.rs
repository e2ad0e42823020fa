//! Rules that respond with an error, for routes and includes with invalid conditions.
//!
//! They never take requests from a valid route of the include tree with an equal match. The
//! exception is a route that might be security-relevant: no other route may serve its requests.

use sesame_proto::refusal;

use super::conditions::Widened;
use super::tree::{DeadEnds, Place};
use crate::ingresses::OneLabel;
use crate::routes::matches::RouteMatch;
use crate::routes::rules::{Action, CheckedRule};

/// Follows the error in a message.
pub(super) const UNLESS_TAKEN: &str = ", unless a valid route has equal conditions";

/// Status for requests that match an invalid include's conditions.
const BAD_GATEWAY: u32 = 502;

pub(super) struct Withheld<'a, 'w> {
    place: &'a Place<'w>,
    one_label: &'a OneLabel,
    protecting: Vec<CheckedRule>,
    rules: Vec<CheckedRule>,
    /// Matches with their response, less likely than the matches in `rules`.
    others: Vec<(RouteMatch, u32)>,
}

impl<'a, 'w> Withheld<'a, 'w> {
    pub(super) fn new(place: &'a Place<'w>, one_label: &'a OneLabel) -> Self {
        Self {
            place,
            one_label,
            protecting: Vec::new(),
            rules: Vec::new(),
            others: Vec::new(),
        }
    }

    pub(super) fn add_route(&mut self, index: usize, widened: Widened, protects: bool) {
        let (protecting, others) = widened.split(protects);
        let mut others = others.into_iter();
        if protecting.is_empty() {
            let likely = others.next();
            self.rules
                .extend(likely.map(|it| self.refuse(index, vec![it], refusal::HTTP)));
        } else {
            self.protecting
                .push(self.refuse(index, protecting, refusal::HTTP));
        }
        self.others.extend(others.map(|it| (it, refusal::HTTP)));
    }

    pub(super) fn whole(&self) -> CheckedRule {
        let last = self.place.proxy.spec.routes.len();
        self.refuse(last, vec![self.place.inherited.whole()], refusal::HTTP)
    }

    /// Returns the rules that precede the HTTPProxy's valid routes, and the rules that follow all
    /// valid routes of the include tree.
    pub(super) fn finish(mut self) -> (Vec<CheckedRule>, Vec<CheckedRule>) {
        let DeadEnds { protecting, others } = &self.place.dead_ends;
        // Indices after the last route make the names unique.
        let mut indices = self.place.proxy.spec.routes.len()..;
        for (route_match, index) in protecting.iter().cloned().zip(&mut indices) {
            let rule = self.refuse(index, vec![route_match], BAD_GATEWAY);
            self.protecting.push(rule);
        }
        let dead_ends = others.iter().cloned().map(|it| (it, BAD_GATEWAY));
        let others = std::mem::take(&mut self.others);
        for ((route_match, status), index) in others.into_iter().chain(dead_ends).zip(indices) {
            let rule = self.refuse(index, vec![route_match], status);
            self.rules.push(rule);
        }
        (self.protecting, self.rules)
    }

    fn refuse(&self, index: usize, matches: Vec<RouteMatch>, status: u32) -> CheckedRule {
        let matches = matches.into_iter().map(|it| self.one_label.applied_to(it));
        CheckedRule {
            first: self.place.number,
            action: Action::respond(status),
            ..CheckedRule::refusing(index, matches.collect())
        }
    }
}
