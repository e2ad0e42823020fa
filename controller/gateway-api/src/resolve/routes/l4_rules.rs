//! The only rule of a TLSRoute, TCPRoute or UDPRoute: its shares of connections or datagrams.

use sesame_proto::schema::WeightedBackend;

use super::rules::{self, Rule, RuleContext, Rules, Unsupported};
use crate::api::L4Rule;
use crate::resolve::backends::Traffic;
use crate::resolve::filters::RuleFault;
use crate::status::Verdict;

/// Where the connections of a rule go.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// With the client's own bytes.
    pub(crate) passed: Vec<WeightedBackend>,
    /// Where the listener ends the client's TLS. Of TLSRoutes only.
    pub(crate) terminated: Option<Terminated>,
}

/// Where connections go of which the client's TLS has ended.
#[derive(Debug)]
pub(crate) struct Terminated {
    pub(crate) backends: Vec<WeightedBackend>,
    /// What is wrong with the references there: all that is wrong anywhere, and what TLS would have to be said for.
    pub(crate) resolved: Verdict,
}

/// What Envoy itself says of the way in which it shares datagrams out.
const UNCOVERED: &str = "spec.rules[0].backendRefs has several backends of a weight: Envoy shares datagrams out with a matcher that it calls a work in progress, not covered by its threat model; give a listener that is open to everybody one backend";

impl Rule for L4Rule {
    type Checked = Shares;

    /// The schema demands one.
    const DEFAULT: &'static [Self] = &[];

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    fn matches(&self) -> usize {
        0
    }

    fn check<'w>(
        &'w self,
        index: usize,
        cx: &mut RuleContext<'_, 'w, '_>,
    ) -> Result<(Shares, Option<Unsupported>), RuleFault> {
        let Self {
            // Checked with those of the other rules.
            name: _,
            backend_refs,
        } = self;
        if let Some(why) = cx.unknown.take() {
            return Err(RuleFault::unsupported(why));
        }
        if let Some(i) = backend_refs.iter().position(|r| !r.filters.is_empty()) {
            return Err(RuleFault::unsupported(format!(
                "backendRefs[{i}].filters must not be set in a {}",
                cx.referrer.kind
            )));
        }
        let (ends_tls, traffic) = (cx.ends_tls, cx.traffic);
        let weights = rules::read_weights(backend_refs).map_err(RuleFault::unsupported)?;
        // Where none is valid, or there is none: everything is refused. Without filters, nothing else can be
        // unsupported.
        let shares = |cx: &mut RuleContext<'_, 'w, '_>, traffic| {
            cx.backends(index, backend_refs, &weights, traffic, &mut Vec::new())
        };
        let passed = shares(cx, traffic);
        if matches!(traffic, Traffic::Datagrams)
            && passed.iter().filter(|share| share.weight > 0).count() > 1
        {
            cx.cx.problems.add(cx.object.clone(), UNCOVERED.to_owned());
        }
        let terminated = ends_tls.then(|| {
            let elsewhere = std::mem::take(cx.resolved);
            let backends = shares(cx, Traffic::Terminated);
            let resolved = std::mem::replace(cx.resolved, elsewhere);
            Terminated { backends, resolved }
        });
        Ok((Shares { passed, terminated }, None))
    }

    fn all(checked: Vec<Shares>) -> Rules {
        Rules::Connections(checked.into_iter().next().unwrap_or_default())
    }
}
