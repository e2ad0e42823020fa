//! Divides traffic among weighted backends.

use sesame_proto::schema::WeightedBackend;

use crate::context::RenderContext;
use crate::rendered::RenderProblems;

/// Name of a cluster that never exists. HTTP requests to it get 500, and connections are closed.
pub const REFUSED_CLUSTER: &str = "refused";

pub(crate) struct Share<'a> {
    /// The backend's cluster, or [`REFUSED_CLUSTER`].
    pub(crate) cluster: &'a str,
    pub(crate) weight: u32,
    pub(crate) backend: &'a WeightedBackend,
}

/// Omits backends with zero weight. The total fits into 32 bits, as Envoy requires.
pub(crate) fn shares<'a>(
    object: &str,
    backends: &'a [WeightedBackend],
    context: &RenderContext<'_>,
    problems: &mut RenderProblems,
) -> Vec<Share<'a>> {
    let total: u64 = backends.iter().map(|b| u64::from(b.weight)).sum();
    let divisor = u32::try_from(total.div_ceil(u64::from(MAX_TOTAL_WEIGHT)))
        .unwrap_or(u32::MAX)
        .max(1);
    let mut shares = Vec::with_capacity(backends.len());
    for backend in backends.iter().filter(|b| b.weight > 0) {
        let name = backend.backend.as_str();
        let cluster = if context.has_cluster(name) {
            name
        } else {
            if !name.is_empty() {
                problems.add(
                    object,
                    format!("backend `{name}` has no cluster; its share is rejected"),
                );
            }
            REFUSED_CLUSTER
        };
        shares.push(Share {
            cluster,
            // Never round to zero, because every configured backend must get traffic.
            weight: (backend.weight / divisor).max(1),
            backend,
        });
    }
    shares
}

/// Maximum sum of all weights. Leaves room for weights that are rounded up to 1.
const MAX_TOTAL_WEIGHT: u32 = u32::MAX / 2;
