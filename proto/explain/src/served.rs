//! Finds the listeners and matches that serve an object.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use sesame_proto::provenance::Provenance;
use sesame_proto::schema::route::Action;
use sesame_proto::schema::{Listener, Port, Route, Snapshot, Transport, WeightedBackend};

use super::describe;
use super::hosts;

/// A listener or match that belongs to an object or uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedPlace {
    /// `Gateway/namespace/name`.
    pub gateway: String,
    /// `Gateway/namespace/name/listeners/http`.
    pub listener: String,
    /// Port, with `/UDP` appended for UDP.
    pub port: String,
    /// Host or server name. Empty for all hosts.
    pub host: String,
    /// The listener, or a match on it.
    pub part: String,
    /// Conditions that a request or connection must meet, as text.
    pub condition: String,
}

/// Returns the listeners and matches that belong to `object` (`Kind/namespace/name`) or use it, in
/// the snapshot's order.
pub fn served(snapshot: &Snapshot, object: &str) -> Vec<ServedPlace> {
    let mut places = Vec::new();
    for port in &snapshot.ports {
        for listener in &port.listeners {
            let place = Place {
                snapshot,
                port,
                listener,
            };
            place.of_listener(object, &mut places);
            place.of_requests(object, &mut places);
            place.of_connections(object, &mut places);
        }
    }
    places
}

/// Formats the result of [`served`]. `plain` must remove control characters that terminals would
/// interpret.
pub fn served_text(served: &[ServedPlace], plain: impl Fn(&str) -> String) -> String {
    if served.is_empty() {
        return "  is served nowhere\n".to_owned();
    }
    let mut text = String::new();
    // Writing to a String cannot fail.
    for place in served {
        let ServedPlace {
            gateway: _,
            listener,
            port,
            host,
            part,
            condition,
        } = place;
        let host = describe::host(host);
        let _ = writeln!(text, "  served by {listener} (port {port}) for {host}");
        if part != listener {
            let _ = writeln!(text, "    {part}");
        }
        let _ = writeln!(text, "    {}", plain(condition));
    }
    text
}

struct Place<'s> {
    snapshot: &'s Snapshot,
    port: &'s Port,
    listener: &'s Listener,
}

impl Place<'_> {
    fn place(&self, host: &str, part: &str, condition: String) -> ServedPlace {
        let number = self.port.port;
        ServedPlace {
            gateway: self.snapshot.gateway.clone(),
            listener: self.listener.name.clone(),
            port: match self.port.transport() {
                Transport::Tcp => number.to_string(),
                Transport::Udp => format!("{number}/UDP"),
            },
            host: host.to_owned(),
            part: part.to_owned(),
            condition,
        }
    }

    fn of_listener(&self, object: &str, places: &mut Vec<ServedPlace>) {
        let Listener { name, hostname, .. } = self.listener;
        if is_of(name, object) || self.snapshot.gateway == object {
            places.push(self.place(hostname, name, "it has its own listener".to_owned()));
        }
        let keys = self.listener.tls.as_ref().map(|tls| tls.keys.as_slice());
        if keys.unwrap_or_default().iter().any(|key| key == object) {
            places.push(self.place(hostname, name, "clients get its certificate".to_owned()));
        }
    }

    fn of_requests(&self, object: &str, places: &mut Vec<ServedPlace>) {
        let tables = self.snapshot.route_tables.iter();
        let tables = tables.filter(|it| it.name == self.listener.route_table);
        for host in tables.flat_map(|table| &table.virtual_hosts) {
            let domain = host.domain.as_str();
            let owner = hosts::owner(self.port, &self.listener.route_table, domain);
            if owner != Some(self.listener) {
                continue;
            }
            for route in &host.routes {
                if is_of(&route.name, object) || leads_to(route, object) {
                    let condition = describe::condition(route);
                    places.push(self.place(domain, &route.name, condition));
                }
            }
        }
    }

    fn of_connections(&self, object: &str, places: &mut Vec<ServedPlace>) {
        for route in &self.listener.l4_routes {
            if is_of(&route.name, object) || any_is_of(&route.backends, object) {
                let hosts = route.hostnames.join(" ");
                places.push(self.place(&hosts, &route.name, "every connection".to_owned()));
            }
        }
    }
}

/// Also returns true if `name` is the name of a part of the object.
fn is_of(name: &str, object: &str) -> bool {
    Provenance::parse(name).is_ok_and(|it| it.object().to_string() == object)
}

fn any_is_of(backends: &[WeightedBackend], object: &str) -> bool {
    backends.iter().any(|it| is_of(&it.backend, object))
}

fn leads_to(route: &Route, object: &str) -> bool {
    match &route.action {
        Some(Action::Forward(forward)) => any_is_of(&forward.backends, object),
        _ => false,
    }
}
