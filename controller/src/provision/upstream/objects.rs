//! Builds the second Gateway and its routes.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sesame_proto::schema::Transport;

use super::name;
use crate::provision::Basis;
use crate::provision::kinds::OwnedKind;
use crate::provision::owned::{OwnedObject, local_object, service_name, stamped};
use crate::provision::plan::Inventory;
use sesame_kinds::api::{GATEWAY_GROUP, NamespacedName, UpstreamSettings};
use sesame_resolver::settings::GatewaySettings;

const MAX_LISTENERS: usize = 64;

#[derive(Debug)]
pub(super) struct UpstreamObjects {
    /// The Gateway comes first.
    pub(super) objects: Vec<OwnedObject>,
    /// Lists the omitted ports and the reason.
    pub(super) left_out: Option<String>,
}

pub(super) fn objects(
    basis: &Basis,
    settings: &GatewaySettings,
    inventory: &Inventory,
) -> Result<UpstreamObjects, String> {
    let class = class(basis, settings, inventory)?;
    let name = name(basis);
    let (mut listeners, mut routes) = (Vec::new(), Vec::new());
    let mut left_out = Vec::new();
    for (transport, port) in &basis.request.ports {
        let (kind, protocol) = match transport {
            Transport::Tcp => (OwnedKind::TcpRoute, "TCP"),
            Transport::Udp => (OwnedKind::UdpRoute, "UDP"),
        };
        if inventory.unwatched.contains(&kind) {
            left_out.push(format!("{protocol} {port}"));
            continue;
        }
        let (listener, route) = listener_and_route(basis, &name.name, kind, protocol, *port);
        listeners.push(listener);
        routes.push(route);
    }
    let left_out = (!left_out.is_empty()).then(|| {
        let ports = left_out.join(", ");
        format!("ports {ports} are omitted: {}", lacking(inventory))
    });
    if listeners.len() > MAX_LISTENERS {
        return Err(format!(
            "the Gateway has {} ports, and the second Gateway can have at most {MAX_LISTENERS} \
            listeners",
            listeners.len()
        ));
    }
    if listeners.is_empty() {
        return match left_out {
            Some(why) => Err(why),
            None => Ok(UpstreamObjects {
                objects: Vec::new(),
                left_out: None,
            }),
        };
    }
    let mut spec = json!({"gatewayClassName": class, "listeners": listeners});
    let wanted = basis.request.addresses.iter();
    let wanted: Vec<Value> = wanted
        .map(|ip| json!({"type": "IPAddress", "value": ip}))
        .collect();
    if !wanted.is_empty() {
        spec["addresses"] = json!(wanted);
    }
    let infrastructure = infrastructure(basis, settings);
    if infrastructure != json!({}) {
        spec["infrastructure"] = infrastructure;
    }
    let gateway = json!({"spec": spec});
    let gateway = local_object(basis, OwnedKind::Gateway, &name.name, &[], gateway);
    let mut objects = vec![stamped(gateway)];
    objects.extend(routes);
    Ok(UpstreamObjects { objects, left_out })
}

fn listener_and_route(
    basis: &Basis,
    upstream: &str,
    kind: OwnedKind,
    protocol: &str,
    port: u16,
) -> (Value, OwnedObject) {
    let section = format!("{}-{port}", protocol.to_lowercase());
    let listener = json!({
        "name": section,
        "port": port,
        "protocol": protocol,
        "allowedRoutes": {
            "namespaces": {"from": "Same"},
            "kinds": [{"group": GATEWAY_GROUP, "kind": kind.as_str()}],
        },
    });
    let route = json!({"spec": {
        "parentRefs": [{"name": upstream, "sectionName": section}],
        "rules": [{"backendRefs": [{"name": service_name(basis), "port": port}]}],
    }});
    let name = format!("{upstream}-{section}");
    (
        listener,
        stamped(local_object(basis, kind, &name, &[], route)),
    )
}

fn infrastructure(basis: &Basis, settings: &GatewaySettings) -> Value {
    let publishing = &settings.publishing;
    let mut infrastructure = json!({});
    for (field, own, more) in [
        ("labels", &basis.labels, &publishing.labels),
        ("annotations", &basis.annotations, &publishing.annotations),
    ] {
        let mut all: BTreeMap<&String, &String> = more.iter().collect();
        all.extend(own);
        if !all.is_empty() {
            infrastructure[field] = json!(all);
        }
    }
    infrastructure
}

fn class<'s>(
    basis: &Basis,
    settings: &'s GatewaySettings,
    inventory: &Inventory,
) -> Result<&'s str, String> {
    const FIELD: &str = "spec.publishing.upstream.gatewayClassName";
    let UpstreamSettings { gateway_class_name } = settings
        .publishing
        .upstream
        .as_ref()
        .unwrap_or(&UpstreamSettings::NONE);
    let Some(class) = gateway_class_name else {
        return Err(format!(
            "{FIELD} is missing: set it to the GatewayClass of the Gateway in front of this one"
        ));
    };
    if *class == basis.class {
        return Err(format!(
            "{FIELD} is {class:?}, which is the Gateway's own class, so it would lead to itself; \
            name another one"
        ));
    }
    if let Some(first) = &basis.leads_to {
        return Err(format!(
            "it is in front of Gateway {first}, so no other Gateway can be in front of it: set \
            another spec.publishing.type for its GatewayClass {:?}",
            basis.class
        ));
    }
    if basis.is_class && leads_back(basis, class, inventory) {
        return Err(format!(
            "{FIELD} is {class:?}, whose own second Gateway leads back to this class, so it would \
            lead to itself; name another one"
        ));
    }
    Ok(class)
}

/// Detects a cycle through the class of `basis`.
fn leads_back(basis: &Basis, class: &str, inventory: &Inventory) -> bool {
    let second_of = |class: &str| {
        let name = NamespacedName::new(&inventory.namespace, class);
        let of = inventory.classes.get(&name)?;
        let mut objects = inventory.objects.iter();
        let (_, second) =
            objects.find(|(key, found)| key.0 == OwnedKind::Gateway && found.is_owned_by(of))?;
        second.value["spec"]["gatewayClassName"].as_str()
    };
    let mut at = Some(class);
    for _ in 0..=inventory.classes.len() {
        match at {
            Some(class) if class == basis.class => return true,
            Some(class) => at = second_of(class),
            None => return false,
        }
    }
    // The classes form a cycle that does not include the class of `basis`.
    false
}

fn lacking(inventory: &Inventory) -> String {
    let lacking = super::ROUTES.into_iter().filter_map(|kind| {
        if inventory.absent.contains(&kind) {
            return Some(format!(
                "the cluster does not serve {kind} v1; install newer definitions of the Gateway API"
            ));
        }
        let forbidden = inventory.unwatched.contains(&kind);
        forbidden
            .then(|| format!("the controller is not permitted to watch objects of kind {kind}"))
    });
    lacking.collect::<Vec<_>>().join("; ")
}
