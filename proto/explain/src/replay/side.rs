//! How one configuration handles the requests of a log.

use sesame_proto::schema::{Protocol, Snapshot};

use super::super::outcome::{ExplainedOutcome, Explanation};
use super::super::request::{ExplainRequest, UrlScheme};
use super::super::{ExplainError, chain};
use super::decide::{RequestDecider, RequestDecision};

/// The Gateways of one configuration.
#[derive(Debug)]
pub(super) struct ReplaySide<'s> {
    pub(super) deciders: Vec<RequestDecider<'s>>,
}

/// Index of the Gateway that listens on the request's port, and its decision.
pub(super) type SideDecision = Option<(usize, RequestDecision)>;

impl<'s> ReplaySide<'s> {
    pub(super) fn new(snapshots: &'s [Snapshot]) -> Self {
        Self {
            deciders: snapshots.iter().map(RequestDecider::new).collect(),
        }
    }

    pub(super) fn listens(&self, port: u16) -> bool {
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
    pub(super) fn decide(
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

    pub(super) fn route_name(&self, decision: SideDecision) -> Option<&'s str> {
        let (at, decision) = decision?;
        self.deciders.get(at)?.route_name(decision)
    }

    /// Returns true if no host or no route matches.
    pub(super) fn has_no_route(&self, decision: SideDecision) -> bool {
        match decision.map(|(_, decision)| decision) {
            Some(RequestDecision::NoHost) => true,
            Some(RequestDecision::Routed(_)) => self.route_name(decision).is_none(),
            None
            | Some(RequestDecision::Closed | RequestDecision::Forwarded | RequestDecision::Early) => {
                false
            }
        }
    }

    pub(super) fn explain(
        &mut self,
        request: &ExplainRequest,
        decision: SideDecision,
    ) -> Explanation {
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
