//! Reads the state of a second Gateway: its addresses, and problems that keep clients from reaching
//! them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;
use sesame_proto::dns_name::is_dns_subdomain;

use super::name;
use crate::provision::Basis;
use crate::provision::assigned::{MAX_ADDRESSES, MAX_NOTES, MAX_READ, awaiting, short};
use crate::provision::kinds::OwnedKind;
use crate::provision::plan::Inventory;
use crate::statuses::ServiceAddresses;

/// `problem` is the plan's report on the second Gateway.
pub(in crate::provision) fn addresses(
    basis: &Basis,
    inventory: &Inventory,
    problem: Option<&String>,
) -> ServiceAddresses {
    let key = (OwnedKind::Gateway, name(basis));
    let found = inventory.objects.get(&key);
    let Some(found) = found.filter(|found| found.is_owned_by(basis)) else {
        let made = format!("Gateway {} does not exist yet", key.1);
        return awaiting(problem.map_or(made, Clone::clone));
    };
    let upstream = &found.value;
    let mut notes: Vec<String> = problem.into_iter().cloned().collect();
    notes.extend(own_complaints(upstream, &["Accepted", "Programmed"], ""));
    for listener in entries(upstream, "/status/listeners") {
        let of = format!("listener {:?}: ", text(&listener["name"]));
        let types = ["Accepted", "ResolvedRefs", "Programmed"];
        notes.extend(complaints(upstream, listener, &types, &of));
    }
    for (route, found) in &inventory.objects {
        let (kind, name) = route;
        if super::ROUTES.contains(kind) && found.is_owned_by(basis) {
            let types = ["Accepted", "ResolvedRefs"];
            for parent in entries(&found.value, "/status/parents") {
                let of = format!("{kind} {}: ", name.name);
                notes.extend(complaints(&found.value, parent, &types, &of));
            }
        }
    }
    notes.truncate(MAX_NOTES);
    let addresses = addresses_of(upstream);
    let is_refused = complaints(upstream, &upstream["status"], &["Accepted"], "").next();
    let awaited = (addresses.is_empty() || is_refused.is_some()).then(|| {
        let class = short(&text(&upstream["spec"]["gatewayClassName"]));
        let state = match is_refused {
            Some(_) => "is rejected",
            None => "has no address yet",
        };
        let mut why = format!("Gateway {} of class {class:?} {state}", key.1);
        for note in &notes {
            why = format!("{why}; {note}");
        }
        why
    });
    if awaited.is_some() {
        return ServiceAddresses {
            awaited,
            ..ServiceAddresses::default()
        };
    }
    let given = addresses.join(", ");
    let lacking = basis.request.addresses.iter();
    let lacking = lacking.filter(|ip| !addresses.contains(ip));
    let unusable = lacking.map(|ip| (ip.clone(), format!("Gateway {} has {given}", key.1)));
    ServiceAddresses {
        unusable: unusable.collect(),
        addresses,
        awaited: None,
        notes,
    }
}

fn addresses_of(upstream: &Value) -> Vec<String> {
    let (mut addresses, mut seen) = (Vec::new(), BTreeSet::new());
    for address in entries(upstream, "/status/addresses") {
        let value = text(&address["value"]);
        let address = match address["type"].as_str() {
            None | Some("IPAddress") => value.parse().ok().map(|ip: IpAddr| ip.to_string()),
            Some("Hostname") => Some(value.to_lowercase()).filter(|name| is_dns_subdomain(name)),
            Some(_) => None,
        };
        addresses.extend(address.filter(|address| seen.insert(address.clone())));
    }
    addresses.truncate(MAX_ADDRESSES);
    addresses
}

/// Also reports missing conditions.
fn own_complaints<'v>(
    upstream: &'v Value,
    types: &'v [&'static str],
    of: &'v str,
) -> impl Iterator<Item = String> + 'v {
    let conditions = current(upstream, &upstream["status"]);
    let silent = types
        .iter()
        .all(|type_| conditions.iter().all(|found| found["type"] != *type_));
    let silence = silent.then(|| "its controller has not reported on it yet".to_owned());
    silence
        .into_iter()
        .chain(complaints(upstream, &upstream["status"], types, of))
}

fn complaints<'v>(
    object: &'v Value,
    status: &'v Value,
    types: &'v [&'static str],
    of: &str,
) -> impl Iterator<Item = String> + 'v {
    let of = short(of);
    let current = current(object, status).into_iter();
    let negative = current.filter(|condition| {
        let known = types.iter().any(|type_| condition["type"] == *type_);
        known && condition["status"] == "False"
    });
    negative.map(move |condition| {
        let [name, reason, message] =
            ["type", "reason", "message"].map(|field| short(&text(&condition[field])));
        format!("{of}{name} is False ({reason}): {message}")
    })
}

/// Ignores conditions of earlier generations.
fn current<'v>(object: &'v Value, status: &'v Value) -> Vec<&'v Value> {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
    let conditions = entries(status, "/conditions");
    let seen = |condition: &&Value| condition["observedGeneration"].as_i64();
    conditions
        .filter(|condition| seen(condition).is_none_or(|seen| seen >= generation))
        .collect()
}

fn entries<'v>(value: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> + use<'v> {
    let all = value.pointer(pointer).and_then(Value::as_array);
    all.into_iter().flatten().take(MAX_READ)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
