//! State shared by the checks of HTTPProxies and Ingresses.

use super::listeners::{FoundListeners, ListenersOfGateway};
use crate::backends::{Backends, PolicedBackend, Traffic};
use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use crate::parents::{Parent, RouteParent};
use crate::policies::traffic::LimitCounts;
use crate::routes::CheckedRoute;
use crate::routes::rules::{CheckedRule, RuleContext, Rules};
use crate::syntax::regexes::Regexes;
use sesame_kinds::api::{Metadata, ParentRef};
use sesame_kinds::status::Verdict;
use sesame_kinds::world::{Kind, ObjectKey};

static NO_REFERENCE: ParentRef = ParentRef {
    group: None,
    kind: None,
    namespace: None,
    name: String::new(),
    section_name: None,
    port: None,
};

pub(crate) struct LayeredLookup<'a, 'w, 'o> {
    /// In the same order as the Gateways.
    pub(crate) listeners: &'a [ListenersOfGateway<'a, 'w>],
    pub(crate) routes: &'a mut Vec<CheckedRoute<'w>>,
    pub(crate) cx: &'a mut ResolveContext<'w, 'o>,
    pub(crate) backends: &'a mut Backends<'w>,
    pub(crate) regexes: &'a mut Regexes,
}

pub(crate) struct RuleOwner<'w> {
    object: ObjectKey,
    /// `Kind/namespace/name`.
    provenance: String,
    pub(crate) metadata: &'w Metadata,
}

impl<'w> RuleOwner<'w> {
    pub(crate) fn of(kind: Kind, metadata: &'w Metadata) -> Self {
        let object = kind.named(metadata.key());
        Self {
            provenance: object.to_string(),
            object,
            metadata,
        }
    }
}

impl<'a, 'w, 'o> LayeredLookup<'a, 'w, 'o> {
    /// Returns `None` if Sesame does not serve the Gateway.
    pub(crate) fn gateway(
        &self,
        namespace: &str,
        name: &str,
    ) -> Option<(usize, &'a ListenersOfGateway<'a, 'w>)> {
        let mut all = self.listeners.iter().enumerate();
        all.find(|(_, it)| {
            let owner = &it.gateway().owner;
            (owner.namespace, owner.name) == (namespace, name)
        })
    }

    pub(crate) fn rule_context<'c>(
        &'c mut self,
        owner: &'c RuleOwner<'w>,
    ) -> RuleContext<'c, 'w, 'o> {
        RuleContext {
            referrer: Referrer::new(owner.object.kind, &owner.metadata.namespace),
            traffic: Traffic::Http,
            terminates_tls: false,
            object: &owner.object,
            route: &owner.provenance,
            hostnames: 1,
            policies: None,
            inherited: LimitCounts::default(),
            cx: self.cx,
            backends: self.backends,
            regexes: self.regexes,
        }
    }

    /// Returns `None` if no request could reach the new route.
    pub(crate) fn push(
        &mut self,
        owner: &RuleOwner<'w>,
        rules: Vec<CheckedRule>,
        policed: Vec<PolicedBackend<'w>>,
        on: (usize, FoundListeners),
    ) -> Option<usize> {
        if rules.is_empty() {
            return None;
        }
        self.push_rules(owner, Rules::Requests(rules), policed, on)
    }

    pub(crate) fn push_rules(
        &mut self,
        owner: &RuleOwner<'w>,
        rules: Rules,
        policed: Vec<PolicedBackend<'w>>,
        (gateway, listeners): (usize, FoundListeners),
    ) -> Option<usize> {
        if listeners.is_empty() {
            return None;
        }
        let at = self.routes.len();
        let inherited = self.listeners.get(gateway);
        let inherited = inherited.map_or(0, |it| it.gateway().most_limits.sum());
        self.routes.push(CheckedRoute {
            object: owner.object.clone(),
            size: rules.size(&owner.provenance, inherited),
            provenance: owner.provenance.clone(),
            metadata: owner.metadata,
            parents: vec![RouteParent {
                reference: &NO_REFERENCE,
                parent: Parent { gateway, set: None },
                listeners: Ok(listeners),
            }],
            rules,
            policed,
            accepted: Verdict::default(),
            refuses: false,
            resolved: Verdict::default(),
            dropped: None,
        });
        Some(at)
    }
}
