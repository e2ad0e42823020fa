//! Finds the Pods that XBackends select.
//!
//! If no Pod is ready, terminating Pods that still serve are used. Addresses that could reach the
//! host are rejected unless the options allow them.

use std::collections::HashMap;
use std::net::IpAddr;

use sesame_proto::schema::Endpoint;

use super::endpoints::usable;
use super::x_backends::CheckedXBackend;
use crate::context::ResolveContext;
use sesame_kinds::api::{Pod, PodState};
use sesame_kinds::world::{Kind, World};

/// By namespace.
pub(super) struct Pods<'w>(HashMap<&'w str, Vec<&'w Pod>>);

impl<'w> Pods<'w> {
    pub(super) fn new(world: &'w World) -> Self {
        let mut pods: HashMap<&str, Vec<_>> = HashMap::new();
        for pod in &world.pods {
            let namespace_pods = pods.entry(pod.metadata.namespace.as_str()).or_default();
            namespace_pods.push(pod.as_ref());
        }
        Self(pods)
    }

    /// Returns distinct endpoints, sorted.
    pub(super) fn of(
        &self,
        backend: &CheckedXBackend<'_>,
        cx: &mut ResolveContext<'_, '_>,
    ) -> Vec<Endpoint> {
        let Some(labels) = backend.labels() else {
            return Vec::new();
        };
        let namespace = backend.object.metadata.namespace.as_str();
        let (mut ready, mut terminating): (Vec<IpAddr>, Vec<IpAddr>) = (Vec::new(), Vec::new());
        for pod in self.0.get(namespace).into_iter().flatten() {
            let Pod { metadata, status } = *pod;
            let PodState { address, serving } = status;
            let selected = || {
                let mut labels = labels.iter();
                labels.all(|(key, value)| metadata.labels.get(key) == Some(value))
            };
            if !serving || address.is_empty() || !selected() {
                continue;
            }
            match usable(address, cx.options) {
                Ok(address) if !metadata.is_deleted => ready.push(address),
                Ok(address) => terminating.push(address),
                Err(why) => {
                    let message = format!(
                        "its address {address:?} is rejected because it is {why}; expected an address \
                        of another machine"
                    );
                    cx.problems.add(Kind::Pod.named(metadata.key()), message);
                }
            }
        }
        let mut found = if ready.is_empty() { terminating } else { ready };
        found.sort_unstable();
        found.dedup();
        let endpoint = |address: IpAddr| Endpoint {
            address: address.to_string(),
            port: backend.port.into(),
            ..Endpoint::default()
        };
        found.into_iter().map(endpoint).collect()
    }
}
