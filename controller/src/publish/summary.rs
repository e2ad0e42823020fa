//! Summarizes a Gateway for `kubectl describe` and for controller restarts. Never include data
//! about endpoints, because endpoint changes do not rewrite the manifest.

use std::collections::BTreeMap;

use sesame_proto::delta::{BackendDelta, GatewayDelta};
use sesame_proto::provenance::Provenance;
use sesame_proto::schema::{Manifest, Port, Snapshot};

use sesame_kinds::world::ServedPorts;
use sesame_published::names::{GATEWAY_ENTRY, KEY_SECRETS_ENTRY, SERVED_TOGETHER_ENTRY};

const MAX_LISTENERS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    entries: BTreeMap<String, String>,
    routes: usize,
    backends: usize,
}

impl Summary {
    pub(super) fn of(snapshot: &Snapshot, fleet: &str, key_secrets: usize) -> Self {
        let hosts = snapshot
            .route_tables
            .iter()
            .flat_map(|it| &it.virtual_hosts);
        let together = ServedPorts::of(snapshot).text();
        let together = (!together.is_empty()).then_some((SERVED_TOGETHER_ENTRY, together));
        let entries = [
            (GATEWAY_ENTRY, snapshot.gateway.clone()),
            ("fleet", fleet.to_owned()),
            ("listeners", listeners(&snapshot.ports)),
            ("certificates", snapshot.keys.len().to_string()),
            (KEY_SECRETS_ENTRY, key_secrets.to_string()),
        ];
        let entries = entries.into_iter().chain(together);
        Self {
            entries: entries
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            routes: hosts.map(|host| host.routes.len()).sum(),
            backends: snapshot.backends.len(),
        }
    }

    /// Returns `None` if the changes might affect which listeners are served.
    pub(super) fn updated(&self, delta: &GatewayDelta) -> Option<Self> {
        let GatewayDelta {
            route_tables,
            backends: BackendDelta { added, removed },
            endpoints: _,
        } = delta;
        let mut routes = self.routes;
        for host in route_tables.hosts() {
            if [&host.before, &host.after]
                .into_iter()
                .any(ServedPorts::rejects_all_requests)
            {
                return None;
            }
            routes = routes.checked_sub(host.before.routes.len())?;
            routes = routes.checked_add(host.after.routes.len())?;
        }
        Some(Self {
            entries: self.entries.clone(),
            routes,
            backends: (self.backends + added.len()).checked_sub(removed.len())?,
        })
    }

    pub(super) fn entries(&self, manifest: &Manifest) -> BTreeMap<String, String> {
        let mut entries = self.entries.clone();
        entries.insert("routes".to_owned(), self.routes.to_string());
        entries.insert("backends".to_owned(), self.backends.to_string());
        entries.insert("revision".to_owned(), manifest.revision.clone());
        entries.insert("shards".to_owned(), manifest.config.len().to_string());
        entries
    }
}

fn listeners(ports: &[Port]) -> String {
    let all = ports.iter().flat_map(|port| {
        let listeners = port.listeners.iter();
        listeners.map(move |listener| (port.port, listener))
    });
    let total = ports.iter().map(|port| port.listeners.len()).sum::<usize>();
    let mut lines: Vec<String> = all
        .take(MAX_LISTENERS)
        .map(|(port, listener)| {
            let provenance = Provenance::parse(&listener.name).ok();
            let name = provenance.and_then(|provenance| provenance.listener());
            let name = name.unwrap_or(&listener.name);
            let protocol = listener.protocol().as_str_name();
            let hostname = match listener.hostname.as_str() {
                "" => "*",
                hostname => hostname,
            };
            format!("{name} {protocol} {port} {hostname}")
        })
        .collect();
    if total > MAX_LISTENERS {
        lines.push(format!("and {} more", total - MAX_LISTENERS));
    }
    lines.join("\n")
}
