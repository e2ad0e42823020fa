//! The only rule of a TLSRoute, TCPRoute or UDPRoute: its shares of connections or datagrams.

use sesame_proto::schema::WeightedBackend;

use super::filters::RuleFault;
use super::routes::Rules;
use super::rules::{self, Rule, RuleContext, Unsupported};
use crate::api::L4Rule;

impl Rule for L4Rule {
    type Checked = Vec<WeightedBackend>;

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
    ) -> Result<(Vec<WeightedBackend>, Option<Unsupported>), RuleFault> {
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
        let weights = rules::read_weights(backend_refs).map_err(RuleFault::unsupported)?;
        // Where none is valid, or there is none: everything is refused. Without filters, nothing else can be
        // unsupported.
        let backends = cx.backends(index, backend_refs, &weights, &mut Vec::new());
        Ok((backends, None))
    }

    fn all(checked: Vec<Vec<WeightedBackend>>) -> Rules {
        Rules::Connections(checked.into_iter().next().unwrap_or_default())
    }
}
