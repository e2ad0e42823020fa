//! Compares the responses of two configurations to requests, and groups the differences.

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::schema::{Protocol, Snapshot};

use super::super::bounds;
use super::super::changes::{in_words, outline};
use super::super::outcome::{ExplainedOutcome, Explanation};
use super::super::request::{ExplainRequest, UrlScheme};
use super::super::{ExplainError, chain};
use super::decide::{RequestDecider, RequestDecision};
use super::report::{MAX_EXAMPLES, ReplayedGroup};

/// Maximum number of groups. Their number is otherwise limited only by the number of routes.
const MAX_GROUPS: usize = 10_000;
const MAX_PAIRS: usize = 100_000;
const MAX_WORDS_BYTES: usize = 4096;

/// The Gateways of one configuration.
#[derive(Debug)]
pub(super) struct ReplaySide<'s> {
    deciders: Vec<RequestDecider<'s>>,
}

/// Index of the Gateway that listens on the request's port, and its decision.
type SideDecision = Option<(usize, RequestDecision)>;

impl<'s> ReplaySide<'s> {
    pub(super) fn new(snapshots: &'s [Snapshot]) -> Self {
        Self {
            deciders: snapshots.iter().map(RequestDecider::new).collect(),
        }
    }

    fn listens(&self, port: u16) -> bool {
        let mut deciders = self.deciders.iter();
        deciders.any(|it| chain::listens(it.snapshot(), port))
    }

    /// Returns `None` if nothing listens on the port.
    pub(super) fn scheme(&self, port: u16) -> Option<UrlScheme> {
        if !self.listens(port) {
            return None;
        }
        let ports = self.deciders.iter().flat_map(|it| &it.snapshot().ports);
        let ports = ports.filter(|it| it.port == u32::from(port));
        let mut listeners = ports.flat_map(|it| &it.listeners);
        let tls = listeners.any(|it| matches!(it.protocol(), Protocol::Https | Protocol::Tls));
        Some(if tls {
            UrlScheme::Https
        } else {
            UrlScheme::Http
        })
    }

    /// `gateway` decides if several Gateways listen on the port.
    fn decide(
        &mut self,
        request: &ExplainRequest,
        gateway: Option<&str>,
    ) -> Result<SideDecision, ExplainError> {
        let listening = |it: &RequestDecider<'_>| chain::listens(it.snapshot(), request.port);
        let deciders = self.deciders.iter().enumerate();
        let mut found: Vec<usize> = deciders
            .filter_map(|(at, it)| listening(it).then_some(at))
            .collect();
        let name = |at: &usize| Some(self.deciders.get(*at)?.snapshot().gateway.as_str());
        if found.len() > 1 {
            let named = found.iter().copied().find(|at| name(at) == gateway);
            let Some(named) = named else {
                let gateways = found.iter().filter_map(name).map(str::to_owned).collect();
                let port = request.port;
                return Err(ExplainError::Several { port, gateways });
            };
            found = vec![named];
        }
        let decided = found.first().and_then(|at| {
            let decider = self.deciders.get_mut(*at)?;
            Some((*at, decider.decide(request)))
        });
        Ok(decided)
    }

    fn route_name(&self, decision: SideDecision) -> Option<&'s str> {
        let (at, decision) = decision?;
        self.deciders.get(at)?.route_name(decision)
    }

    fn explain(&mut self, request: &ExplainRequest, decision: SideDecision) -> Explanation {
        let decided = decision.and_then(|(at, it)| Some((self.deciders.get_mut(at)?, it)));
        if let Some((decider, decision)) = decided {
            return decider.explain(request, decision);
        }
        let reason = format!("nothing listens on port {}", request.port);
        Explanation {
            outcome: ExplainedOutcome::Refused { reason },
            ..Explanation::new(&Snapshot::default(), request)
        }
    }
}

/// Result for all requests with the same two decisions.
#[derive(Clone, Copy, Debug)]
enum PairState {
    Same,
    Unanswered,
    Differs(GroupIndex),
    /// The responses depend on the request.
    Depends,
}

/// `None` beyond [`MAX_GROUPS`].
type GroupIndex = Option<usize>;

/// The result of one comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayedRequest {
    pub(super) result: ReplayResult,
    /// The old configuration selects another route than the log names.
    pub(super) rerouted: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ReplayResult {
    Same,
    Unanswered,
    Changed(GroupIndex),
}

#[derive(Debug)]
pub(super) struct ReplayComparison<'s> {
    pub(super) old: ReplaySide<'s>,
    pub(super) new: ReplaySide<'s>,
    pairs: BTreeMap<(SideDecision, SideDecision), PairState>,
    groups: Vec<ReplayedGroup>,
    /// Indexes in `groups` by outline of the old and the new response.
    known: BTreeMap<(String, String), usize>,
}

impl<'s> ReplayComparison<'s> {
    pub(super) fn new(old: &'s [Snapshot], new: &'s [Snapshot]) -> Self {
        Self {
            old: ReplaySide::new(old),
            new: ReplaySide::new(new),
            pairs: BTreeMap::new(),
            groups: Vec::new(),
            known: BTreeMap::new(),
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
        request: &ExplainRequest,
        gateway: Option<&str>,
        route: Option<&str>,
    ) -> Result<ReplayedRequest, ExplainError> {
        let old = self.old.decide(request, gateway)?;
        let new = self.new.decide(request, gateway)?;
        Ok(ReplayedRequest {
            result: self.result(request, old, new),
            rerouted: route.is_some_and(|route| self.old.route_name(old) != Some(route)),
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
            PairState::Depends => {
                let before = self.old.explain(request, old);
                let after = self.new.explain(request, new);
                self.one(request, &before, &after)
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
        let before = form(&self.old, old);
        if before.is_some() && before == form(&self.new, new) {
            return PairState::Same;
        }
        let before = self.old.explain(request, old);
        let after = self.new.explain(request, new);
        if is_refused(&before) && is_refused(&after) {
            return PairState::Unanswered;
        }
        // The outline of a complete decision does not depend on the request.
        if outline(&before) == outline(&after) {
            return PairState::Depends;
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
        self.groups.push(ReplayedGroup {
            requests: 0,
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
        if !group.examples.contains(&example) {
            group.examples.push(example);
        }
    }

    pub(super) fn count(&mut self, group: GroupIndex) {
        if let Some(group) = group.and_then(|at| self.groups.get_mut(at)) {
            group.requests += 1;
        }
    }

    pub(super) fn finish(self) -> Vec<ReplayedGroup> {
        self.groups
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
