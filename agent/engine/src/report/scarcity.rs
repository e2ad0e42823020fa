//! Warns if Envoy lacks inotify instances or shared memory.

use std::collections::BTreeMap;

use sesame_kinds::api::NamespacedName;
use sesame_render::MAX_ENDPOINT_FILES;

use super::GatewayReport;
use crate::observed::Observed;

/// Returns a hint if backends have no file, which makes changes to their endpoints more expensive.
pub(super) fn hint(report: &GatewayReport) -> Option<String> {
    let GatewayReport {
        gateway,
        inline_backends,
        ..
    } = report;
    (*inline_backends > 0).then(|| {
        format!(
            "Gateway {gateway}: {inline_backends} backends have no file for their endpoints, so changing them takes Envoy longer and opens new connections; the backends that change most have files: at most {MAX_ENDPOINT_FILES}, or fewer if fs.inotify.max_user_instances is low (`sesame-agent doctor` shows the value to set; then restart the agent)"
        )
    })
}

pub(super) fn warnings(
    observed: &BTreeMap<NamespacedName, Observed>,
) -> impl Iterator<Item = String> {
    observed.iter().flat_map(|(name, observed)| {
        let why = observed
            .scarcity
            .as_deref()
            .into_iter()
            .chain(observed.not_hot);
        why.map(move |why| format!("Gateway {name}: {why}"))
    })
}
