//! The only rule of a TLSRoute, TCPRoute or UDPRoute: its shares of connections or datagrams.

use sesame_proto::schema::WeightedBackend;

use super::backends::Traffic;
use super::filters::RuleFault;
use super::routes::Rules;
use super::rules::{self, Rule, RuleContext, Unsupported};
use crate::api::L4Rule;

/// Where the connections of a rule go.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// With the client's own bytes.
    pub(super) passed: Vec<WeightedBackend>,
    /// Where the listener ends the client's TLS. Of TLSRoutes only.
    pub(super) terminated: Vec<WeightedBackend>,
}

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
        let mut shares =
            |traffic| cx.backends(index, backend_refs, &weights, traffic, &mut Vec::new());
        let passed = shares(traffic);
        let terminated = if ends_tls {
            shares(Traffic::Terminated)
        } else {
            Vec::new()
        };
        Ok((Shares { passed, terminated }, None))
    }

    fn all(checked: Vec<Shares>) -> Rules {
        Rules::Connections(checked.into_iter().next().unwrap_or_default())
    }
}
