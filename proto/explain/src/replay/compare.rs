//! Compares the responses of two configurations to requests, and groups the differences.

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::schema::Snapshot;

use super::super::ExplainError;
use super::super::bounds;
use super::super::changes::{in_words, outline};
use super::super::outcome::{ExplainedOutcome, Explanation};
use super::super::request::ExplainRequest;
use super::decide::RequestDecision;
use super::report::{MAX_EXAMPLES, ReplayedGroup};
use super::side::{ReplaySide, SideDecision};

/// Maximum number of groups. Their number is otherwise limited only by the number of routes.
const MAX_GROUPS: usize = 10_000;
const MAX_PAIRS: usize = 100_000;
const MAX_WORDS_BYTES: usize = 4096;

/// Result for all requests with the same two decisions.
#[derive(Clone, Copy, Debug)]
enum PairState {
    Same,
    Unanswered,
    Differs(GroupIndex),
    /// The responses depend on the request.
    Depends {
        settings: ComparedSettings,
    },
}

/// How the settings of two decisions differ if their responses are described alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComparedSettings {
    Same,
    /// The routes, policies or backends differ.
    Other,
    /// The checks or limits differ.
    OtherProtection,
}

/// `None` beyond [`MAX_GROUPS`].
type GroupIndex = Option<usize>;

/// The result of one comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayedRequest {
    pub(super) result: ReplayResult,
    /// The old configuration selects another route than the log names.
    pub(super) rerouted: bool,
    /// Neither configuration has a route for the request.
    pub(super) unrouted: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ReplayResult {
    Same,
    /// The responses are described alike, but settings differ.
    OtherSettings,
    /// The responses are described alike, but checks or limits differ.
    OtherProtection,
    Unanswered,
    Changed(GroupIndex),
}

#[derive(Debug)]
pub(super) struct ReplayComparison<'s> {
    pub(super) old: ReplaySide<'s>,
    pub(super) new: ReplaySide<'s>,
    pairs: BTreeMap<(SideDecision, SideDecision), PairState>,
    groups: Vec<GroupTally>,
    /// Indexes in `groups`.
    known: BTreeMap<GroupKey, usize>,
    /// Line of the request that is being compared.
    line: u64,
}

/// Outlines of the old and the new response.
pub(super) type GroupKey = (String, String);

/// Requests with the same outlines, in some parts of the log.
#[derive(Debug)]
pub(super) struct GroupTally {
    requests: u64,
    /// Line of the first request, whose responses are described.
    first: u64,
    before: String,
    after: String,
    /// Different examples with their lines, in the log's order.
    examples: Vec<(u64, String)>,
}

impl GroupTally {
    /// Adds the same group from other parts of the log.
    pub(super) fn merge(&mut self, other: Self) {
        let Self {
            requests,
            first,
            before,
            after,
            examples,
        } = other;
        self.requests += requests;
        if first < self.first {
            (self.first, self.before, self.after) = (first, before, after);
        }
        self.examples.extend(examples);
        self.examples.sort();
        let mut seen = BTreeSet::new();
        self.examples.retain(|(_, text)| seen.insert(text.clone()));
        self.examples.truncate(MAX_EXAMPLES);
    }

    pub(super) fn into_group(self) -> ReplayedGroup {
        ReplayedGroup {
            requests: self.requests,
            before: self.before,
            after: self.after,
            examples: self.examples.into_iter().map(|(_, text)| text).collect(),
        }
    }
}

impl<'s> ReplayComparison<'s> {
    pub(super) fn new(old: &'s [Snapshot], new: &'s [Snapshot]) -> Self {
        Self {
            old: ReplaySide::new(old),
            new: ReplaySide::new(new),
            pairs: BTreeMap::new(),
            groups: Vec::new(),
            known: BTreeMap::new(),
            line: 0,
        }
    }

    pub(super) fn listens(&self, port: u16) -> bool {
        self.old.listens(port) || self.new.listens(port)
    }

    /// Returns 443 if a Gateway listens on it, else 80, else the first port.
    pub(super) fn default_port(&self) -> u16 {
        let sides = [&self.old, &self.new].into_iter();
        let ports = sides
            .flat_map(|side| &side.deciders)
            .flat_map(|it| &it.snapshot().ports);
        let ports = ports.filter_map(|it| u16::try_from(it.port).ok());
        let ports: BTreeSet<u16> = ports.filter(|port| self.listens(*port)).collect();
        let usual = [443, 80].into_iter().find(|port| ports.contains(port));
        usual.or_else(|| ports.first().copied()).unwrap_or(80)
    }

    pub(super) fn compare(
        &mut self,
        line: u64,
        request: &ExplainRequest,
        gateway: Option<&str>,
        route: Option<&str>,
    ) -> Result<ReplayedRequest, ExplainError> {
        self.line = line;
        let old = self.old.decide(request, gateway)?;
        let new = self.new.decide(request, gateway)?;
        Ok(ReplayedRequest {
            result: self.result(request, old, new),
            rerouted: route.is_some_and(|route| self.old.route_name(old) != Some(route)),
            unrouted: self.old.has_no_route(old) && self.new.has_no_route(new),
        })
    }

    fn result(
        &mut self,
        request: &ExplainRequest,
        old: SideDecision,
        new: SideDecision,
    ) -> ReplayResult {
        let state = if let Some(state) = self.pairs.get(&(old, new)) {
            *state
        } else {
            let state = self.first(request, old, new);
            if is_complete(old) && is_complete(new) {
                if self.pairs.len() >= MAX_PAIRS {
                    self.pairs.clear();
                }
                self.pairs.insert((old, new), state);
            }
            state
        };
        match state {
            PairState::Same => ReplayResult::Same,
            PairState::Unanswered => ReplayResult::Unanswered,
            PairState::Differs(group) => {
                self.add_example(group, request);
                ReplayResult::Changed(group)
            }
            PairState::Depends { settings } => {
                let before = self.old.explain(request, old);
                let after = self.new.explain(request, new);
                match (self.one(request, &before, &after), settings) {
                    (ReplayResult::Same, ComparedSettings::Other) => ReplayResult::OtherSettings,
                    (ReplayResult::Same, ComparedSettings::OtherProtection) => {
                        ReplayResult::OtherProtection
                    }
                    (result, _) => result,
                }
            }
        }
    }

    fn first(
        &mut self,
        request: &ExplainRequest,
        old: SideDecision,
        new: SideDecision,
    ) -> PairState {
        let form = |side: &ReplaySide<'s>, decision: SideDecision| {
            let (at, decision) = decision?;
            side.deciders.get(at)?.form(decision)
        };
        let (before, after) = (form(&self.old, old), form(&self.new, new));
        if before.is_some() && before == after {
            return PairState::Same;
        }
        let protections = |side: &ReplaySide<'s>, decision: SideDecision| {
            let (at, decision) = decision?;
            Some(side.deciders.get(at)?.protections(decision))
        };
        let settings = match before.is_some() && after.is_some() {
            true if protections(&self.old, old) != protections(&self.new, new) => {
                ComparedSettings::OtherProtection
            }
            true => ComparedSettings::Other,
            false => ComparedSettings::Same,
        };
        let before = self.old.explain(request, old);
        let after = self.new.explain(request, new);
        if is_refused(&before) && is_refused(&after) {
            return PairState::Unanswered;
        }
        // The outline of a complete decision does not depend on the request.
        if outline(&before) == outline(&after) {
            return PairState::Depends { settings };
        }
        PairState::Differs(self.group(&before, &after))
    }

    fn one(
        &mut self,
        request: &ExplainRequest,
        before: &Explanation,
        after: &Explanation,
    ) -> ReplayResult {
        if is_refused(before) && is_refused(after) {
            return ReplayResult::Unanswered;
        }
        if in_words(before) == in_words(after) {
            return ReplayResult::Same;
        }
        let group = self.group(before, after);
        self.add_example(group, request);
        ReplayResult::Changed(group)
    }

    fn group(&mut self, before: &Explanation, after: &Explanation) -> GroupIndex {
        let key = (outline(before), outline(after));
        if let Some(at) = self.known.get(&key) {
            return Some(*at);
        }
        let at = self.groups.len();
        if at >= MAX_GROUPS {
            return None;
        }
        let [before, after] = [before, after].map(|explanation| {
            let mut words = in_words(explanation);
            bounds::shorten(&mut words, MAX_WORDS_BYTES);
            words
        });
        self.groups.push(GroupTally {
            requests: 0,
            first: self.line,
            before,
            after,
            examples: Vec::new(),
        });
        self.known.insert(key, at);
        Some(at)
    }

    fn add_example(&mut self, group: GroupIndex, request: &ExplainRequest) {
        let Some(group) = group.and_then(|at| self.groups.get_mut(at)) else {
            return;
        };
        if group.examples.len() >= MAX_EXAMPLES {
            return;
        }
        let path = request.path.split('?').next().unwrap_or_default();
        let scheme = request.scheme.as_str();
        let authority = &request.authority;
        let example = format!("{} {scheme}://{authority}{path}", request.method);
        if !group.examples.iter().any(|(_, known)| *known == example) {
            group.examples.push((self.line, example));
        }
    }

    pub(super) fn count(&mut self, group: GroupIndex) {
        if let Some(group) = group.and_then(|at| self.groups.get_mut(at)) {
            group.requests += 1;
        }
    }

    pub(super) fn finish(self) -> BTreeMap<GroupKey, GroupTally> {
        let groups = self.groups.into_iter().map(Some);
        let mut groups: Vec<Option<GroupTally>> = groups.collect();
        let known = self.known.into_iter();
        known
            .filter_map(|(key, at)| Some((key, groups.get_mut(at)?.take()?)))
            .collect()
    }
}

/// Returns true if the outline of the response depends only on the decision.
fn is_complete(decision: SideDecision) -> bool {
    match decision.map(|(_, decision)| decision) {
        None
        | Some(RequestDecision::Closed | RequestDecision::NoHost | RequestDecision::Routed(_)) => {
            true
        }
        Some(RequestDecision::Forwarded | RequestDecision::Early) => false,
    }
}

fn is_refused(explanation: &Explanation) -> bool {
    matches!(explanation.outcome, ExplainedOutcome::Refused { .. })
}
