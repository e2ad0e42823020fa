//! Reads the single rule of a TLSRoute, TCPRoute or UDPRoute.

use super::backend_refs::read_weights;
use super::rules::{RouteRule, RuleContext, RuleOutcome, Rules, Shares, Terminated};
use crate::backends::Traffic;
use crate::filters;
use crate::filters::rewrites::BackendRewrites;
use crate::policies::traffic::connections::ConnectionChecks;
use sesame_kinds::api::L4Rule;
use sesame_kinds::status::{Grounds, Verdict, unsupported};

const UNCOVERED: &str = "spec.rules[0].backendRefs has several weighted backends: Envoy \
    distributes datagrams with a matcher that is work in progress and outside its threat model; \
    use one backend if the listener is open to untrusted clients";

impl RouteRule for L4Rule {
    type Checked = Shares;

    /// The API schema requires a rule.
    const DEFAULT: &'static [Self] = &[];

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    fn matches(&self) -> usize {
        0
    }

    fn protects(&self) -> bool {
        filters::protect(&[], &self.backend_refs)
    }

    fn check<'w>(
        &'w self,
        index: usize,
        unknown: Option<String>,
        cx: &mut RuleContext<'_, 'w, '_>,
    ) -> Result<RuleOutcome<'w, Shares>, Grounds> {
        let Self {
            name: _,
            backend_refs,
        } = self;
        if let Some(why) = unknown {
            return Err(unsupported(why));
        }
        if let Some(i) = backend_refs.iter().position(|r| !r.filters.is_empty()) {
            return Err(unsupported(format!(
                "backendRefs[{i}].filters must not be set in a {}",
                cx.referrer.kind
            )));
        }
        let weights = read_weights(backend_refs).map_err(unsupported)?;
        let passed = cx.shares(
            index,
            backend_refs,
            &weights,
            cx.traffic,
            BackendRewrites::Unsupported,
        );
        let mut references = passed.references;
        let used = passed.backends.iter().filter(|share| share.weight > 0);
        if cx.traffic == Traffic::Datagrams && used.count() > 1 {
            cx.cx.problems.add(cx.object.clone(), UNCOVERED.to_owned());
        }
        let terminated = cx.terminates_tls.then(|| {
            let shares = cx.shares(
                index,
                backend_refs,
                &weights,
                Traffic::Terminated,
                BackendRewrites::Unsupported,
            );
            let resolved = shares.references.verdict();
            references.policed.extend(shares.references.policed);
            Terminated {
                backends: shares.backends,
                resolved,
            }
        });
        Ok(RuleOutcome {
            checked: Shares {
                passed: passed.backends,
                terminated,
                checks: cx.connection_checks(self.name()),
            },
            unsupported: None,
            references,
        })
    }

    fn refusing(
        &self,
        _index: usize,
        withheld: bool,
        cx: &mut RuleContext<'_, '_, '_>,
    ) -> Option<Shares> {
        (withheld || self.protects()).then(|| Self::refusing_all(cx))
    }

    /// Without backends, Envoy rejects all connections.
    fn refusing_all(cx: &RuleContext<'_, '_, '_>) -> Shares {
        Shares {
            passed: Vec::new(),
            terminated: cx.terminates_tls.then(|| Terminated {
                backends: Vec::new(),
                resolved: Verdict::default(),
            }),
            checks: ConnectionChecks::default(),
        }
    }

    fn all(checked: Vec<Shares>) -> Rules {
        Rules::Connections(checked.into_iter().next().unwrap_or_default())
    }
}

impl RuleContext<'_, '_, '_> {
    fn connection_checks(&self, rule: &str) -> ConnectionChecks {
        let target = (self.referrer.namespace, self.object.name.name.as_str());
        let policies = self.policies.as_ref();
        policies.map_or_else(ConnectionChecks::default, |policies| {
            let settings = policies.settings_for(self.object.kind, target, rule);
            settings.connections
        })
    }
}
