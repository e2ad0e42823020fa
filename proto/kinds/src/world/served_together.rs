//! Ports on which merged Gateways were last served. Resolution uses these ports while a Gateway's
//! settings are invalid.
//!
//! Resolution keeps no state, so the caller passes the ports to the next resolution. After a
//! restart, the caller passes the published or accepted ports.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use sesame_proto::provenance::Provenance;
use sesame_proto::refusal;
use sesame_proto::schema::route::Action;
use sesame_proto::schema::{DirectResponse, Listener, Snapshot, VirtualHost};

use super::{Kind, ObjectKey};
use crate::api::NamespacedName;

/// Served ports of each object that defines listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedPorts(BTreeMap<ObjectKey, BTreeSet<u16>>);

impl ServedPorts {
    /// Collects the ports from a snapshot of merged Gateways. Ignores listeners that reject all
    /// requests.
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut found = Self::default();
        let refusing = refusing(snapshot);
        for port in &snapshot.ports {
            let Ok(number) = u16::try_from(port.port) else {
                continue;
            };
            for listener in &port.listeners {
                let of = Provenance::parse(&listener.name).ok();
                let of = of.and_then(|of| ObjectKey::parse(&of.object().to_string()));
                let Some(of) = of else {
                    continue;
                };
                let ports = found.0.entry(of).or_default();
                if !is_closed(listener) && !refusing.contains(listener.name.as_str()) {
                    ports.insert(number);
                }
            }
        }
        let by_itself = ObjectKey::parse(&snapshot.gateway);
        if by_itself.is_some_and(|gateway| found.0.contains_key(&gateway)) {
            return Self::default();
        }
        found.0.retain(|_, ports| !ports.is_empty());
        found
    }

    /// Returns true if the virtual host rejects all requests to a listener. [`Self::of`] ignores
    /// such listeners.
    pub fn rejects_all_requests(host: &VirtualHost) -> bool {
        refusing_listener(host).is_some()
    }

    /// Parses the output of [`Self::text`]. Ignores malformed lines.
    pub fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let (object, ports) = line.split_once(' ')?;
            let ports = ports.split(' ').map(str::parse);
            let ports = ports.collect::<Result<BTreeSet<u16>, _>>().ok()?;
            Some((ObjectKey::parse(object)?, ports))
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// Returns one line per object, such as `Gateway/namespace/name 80 443`.
    pub fn text(&self) -> String {
        let line = |(object, ports): (&ObjectKey, &BTreeSet<u16>)| {
            let ports = ports.iter().map(|port| format!(" {port}"));
            format!("{object}{}", ports.collect::<String>())
        };
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn is_closed(listener: &Listener) -> bool {
    listener.route_table.is_empty() && listener.tls.is_none() && listener.l4_routes.is_empty()
}

fn refusing(snapshot: &Snapshot) -> HashSet<&str> {
    let tables = snapshot.route_tables.iter();
    let hosts = tables.flat_map(|it| &it.virtual_hosts);
    hosts.filter_map(refusing_listener).collect()
}

/// Returns the listener's name if the virtual host rejects all requests to the listener.
fn refusing_listener(host: &VirtualHost) -> Option<&str> {
    let [only] = host.routes.as_slice() else {
        return None;
    };
    let refused = Action::DirectResponse(DirectResponse::new(refusal::HTTP));
    if only.action.as_ref() != Some(&refused) {
        return None;
    }
    Provenance::parse(&only.name).ok()?.listener()?;
    Some(&only.name)
}

/// Served ports of merged Gateways, by the name under which they are published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedTogether(Arc<BTreeMap<NamespacedName, ServedPorts>>);

impl ServedTogether {
    /// Collects the ports from resolved, published or accepted snapshots.
    pub fn of<'s>(snapshots: impl IntoIterator<Item = &'s Snapshot>) -> Self {
        let named = |snapshot: &'s Snapshot| {
            let name = ObjectKey::parse_as(Kind::Gateway, &snapshot.gateway)?;
            Some((name, ServedPorts::of(snapshot)))
        };
        snapshots.into_iter().filter_map(named).collect()
    }

    /// Returns the last served ports of `object` as part of `published_as`, or `None` if unknown.
    pub fn ports(
        &self,
        published_as: &NamespacedName,
        object: &ObjectKey,
    ) -> Option<&BTreeSet<u16>> {
        self.0.get(published_as)?.0.get(object)
    }

    /// Adds the previous ports of objects for which `is_kept` returns true.
    pub fn keep(&mut self, before: &Self, is_kept: impl Fn(&NamespacedName, &ObjectKey) -> bool) {
        for (name, ServedPorts(objects)) in before.0.iter() {
            for (object, ports) in objects.iter().filter(|(object, _)| is_kept(name, object)) {
                let ports_by_object = Arc::make_mut(&mut self.0).entry(name.clone()).or_default();
                let now = ports_by_object.0.entry(object.clone()).or_default();
                now.extend(ports);
            }
        }
    }
}

impl FromIterator<(NamespacedName, ServedPorts)> for ServedTogether {
    fn from_iter<I: IntoIterator<Item = (NamespacedName, ServedPorts)>>(all: I) -> Self {
        let several = |(_, ports): &(NamespacedName, ServedPorts)| !ports.0.is_empty();
        Self(Arc::new(all.into_iter().filter(several).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn served_ports_read_back_and_skip_bad_lines() {
        let text = "Gateway/web/a 80 443\nListenerSet/web/b 9000";
        assert_eq!(ServedPorts::parse(text).text(), text);
        for bad in [
            "",
            "Gateway/web/a",
            "Gateway/web/a 99999",
            "gateway/web/a 80",
            "Gateway/a 80",
        ] {
            assert_eq!(ServedPorts::parse(bad), ServedPorts::default(), "{bad}");
        }
    }
}
