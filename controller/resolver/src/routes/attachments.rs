//! Attaches routes to the listeners of each Gateway.

use super::Routes;
use crate::gateways::CheckedGateway;
use crate::listeners::CheckedListener;
use crate::parents::listeners::CommonHostname;

pub(crate) struct AttachedGateway<'a, 'w> {
    pub(crate) gateway: &'a CheckedGateway<'w>,
    /// In the same order as [`CheckedGateway::listeners`].
    pub(crate) listeners: Vec<AttachedListener<'a, 'w>>,
}

pub(crate) struct AttachedListener<'a, 'w> {
    pub(crate) listener: &'a CheckedListener<'w>,
    pub(crate) client_key: Option<&'a str>,
    pub(crate) attachments: Vec<Attachment<'a>>,
}

#[derive(Debug)]
pub(crate) struct Attachment<'a> {
    pub(crate) route: usize,
    pub(crate) parent: usize,
    pub(crate) hosts: &'a [CommonHostname],
    /// True if the route counts towards the listener's `attachedRoutes`.
    pub(crate) counts: bool,
    /// Name of the Gateway if the Gateway reaches the route's backends through a mesh.
    pub(crate) mesh: Option<&'a str>,
}

/// Routes that are not accepted attach only if they must reject their requests.
pub(crate) fn attach<'a, 'w>(
    gateways: &'a [CheckedGateway<'w>],
    routes: &'a Routes<'w>,
) -> Vec<AttachedGateway<'a, 'w>> {
    let mut attached: Vec<AttachedGateway<'a, 'w>> = gateways
        .iter()
        .map(|gateway| AttachedGateway {
            gateway,
            listeners: gateway
                .listeners
                .iter()
                .map(|listener| AttachedListener {
                    listener,
                    client_key: gateway.client_key.as_deref(),
                    attachments: Vec::new(),
                })
                .collect(),
        })
        .collect();
    for (place, route) in routes.iter().enumerate() {
        for (parent, (gateway, listeners)) in route.attaches_to() {
            let Some(gateway) = attached.get_mut(gateway) else {
                continue;
            };
            let mesh = gateway.gateway.mesh.as_ref();
            let mesh = mesh.filter(|mesh| mesh.selects(route.metadata));
            let mesh = mesh.map(|mesh| mesh.gateway.as_str());
            for (listener, hosts) in listeners {
                let Some(listener) = gateway.listeners.get_mut(*listener) else {
                    continue;
                };
                // Several parentRefs may match the listener, but the route attaches only once.
                if listener
                    .attachments
                    .last()
                    .is_none_or(|last| last.route != place)
                {
                    listener.attachments.push(Attachment {
                        route: place,
                        parent,
                        hosts,
                        counts: route.accepted.good() && route.object.kind.is_gateway_api(),
                        mesh,
                    });
                }
            }
        }
    }
    attached
}
