//! `spec.tls` becomes HTTPS listeners of a ListenerSet, in the namespace of the Secrets.

use serde_json::{Map, Value, json};

use super::super::draft::Draft;
use super::super::fields::RemainingFields;
use super::super::routing;
use super::IngressInput;

const TO: &str = "ListenerSet listeners";

pub(super) fn convert(draft: &mut Draft, input: &mut IngressInput, spec: &mut RemainingFields) {
    let object = draft.input(&input.id);
    let object = object.cloned().unwrap_or_default();
    let mut listeners: Vec<(String, Vec<String>)> = Vec::new();
    for field in spec.list("tls") {
        let hosts = super::index::tls_hosts(&object, field.value());
        let mut entry = field.fields();
        if let Some(hosts) = entry.take("hosts") {
            hosts.texts(TO);
        } else {
            entry.note_difference(
                "hosts",
                TO,
                "the hosts of all rules, because none are given",
            );
        }
        let Some(secret) = entry.text("secretName", "ListenerSet listeners.tls") else {
            let reason = "the host would not be served over HTTPS without a certificate";
            entry.refuse("secretName", reason, "name the Secret with the certificate");
            continue;
        };
        for host in hosts {
            if input.index.certificates.get(&host) != Some(&input.id) {
                let difference = "an older Ingress has a certificate for one of the hosts, which \
                    clients get, as in ingress-nginx";
                entry.note_difference("hosts", TO, difference);
                continue;
            }
            match listeners.iter_mut().find(|(known, _)| *known == host) {
                Some((_, secrets)) => secrets.push(secret.clone()),
                None => listeners.push((host, vec![secret.clone()])),
            }
        }
    }
    let listeners = listeners.into_iter().map(|(host, secrets)| {
        let refs = secrets.into_iter().map(|name| json!({ "name": name }));
        let refs: Vec<Value> = refs.collect();
        routing::listener(&host, "HTTPS", json!({ "certificateRefs": refs }))
    });
    let listeners: Vec<Value> = listeners.collect();
    if !listeners.is_empty() {
        let metadata = certificate_metadata(&mut input.metadata);
        routing::add_listeners(draft, &input.id, &input.class, &metadata, &listeners);
    }
}

/// cert-manager reads its annotations on the object with the certificates.
fn certificate_metadata(metadata: &mut Map<String, Value>) -> Map<String, Value> {
    let mut own = metadata.clone();
    let is_own = |key: &str| {
        key.split('/')
            .next()
            .is_some_and(|it| it.ends_with("cert-manager.io"))
    };
    for (metadata, keeps) in [(&mut own, true), (metadata, false)] {
        let annotations = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut);
        let Some(annotations) = annotations else {
            continue;
        };
        annotations.retain(|key, _| is_own(key) == keeps);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    own
}
