//! Settings of Services, which many routes may share.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId, sesame_object};
use super::super::values::{put, put_list};
use super::MAX_TARGETS;

/// Settings of Services, each with the object that needs them.
#[derive(Debug, Default)]
pub(in super::super) struct ServiceSettings(BTreeMap<ObjectId, (ObjectId, Map<String, Value>)>);

impl ServiceSettings {
    /// Returns the object whose other settings the Service has, if there is one.
    pub(in super::super) fn claim(
        &mut self,
        service: ObjectId,
        source: &ObjectId,
        settings: &Map<String, Value>,
    ) -> Option<ObjectId> {
        let (owner, known) = self
            .0
            .entry(service)
            .or_insert_with(|| (source.clone(), settings.clone()));
        (known != settings).then(|| owner.clone())
    }

    /// Adds a BackendPolicy for all Services of a namespace that have the same settings.
    pub(in super::super) fn add_to(self, draft: &mut Draft) {
        let mut groups: Vec<(ObjectId, Map<String, Value>, Vec<ObjectId>)> = Vec::new();
        for (service, (source, settings)) in self.0 {
            if settings.is_empty() {
                continue;
            }
            let alike = groups.iter_mut().find(|(_, known, services)| {
                let near = services
                    .first()
                    .is_some_and(|it| it.namespace == service.namespace);
                near && *known == settings
            });
            match alike {
                Some((_, _, services)) => services.push(service),
                None => groups.push((source, settings, vec![service])),
            }
        }
        for (_, settings, services) in groups {
            for part in services.chunks(MAX_TARGETS) {
                let Some(first) = part.first() else { continue };
                let refs = part.iter();
                let refs = refs.map(|it| json!({"group": "", "kind": "Service", "name": it.name}));
                let mut spec = Map::new();
                put_list(&mut spec, "targetRefs", refs.collect());
                let mut rest = settings.clone();
                spec.append(&mut rest);
                let mut metadata = Map::new();
                put(&mut metadata, "name", Some(first.name.as_str()));
                put(&mut metadata, "namespace", Some(first.namespace.as_str()));
                // Other routes use the Services, too, so no refused field stops the policy.
                let policy = sesame_object("BackendPolicy", metadata, spec.into());
                draft.add(first, policy);
            }
        }
    }
}

/// Adds a BackendTLSPolicy for a Service. Returns false if the Service has another one.
pub(in super::super) fn add_backend_tls(
    draft: &mut Draft,
    source: &ObjectId,
    service: &ObjectId,
    validation: &Map<String, Value>,
) -> bool {
    let policy = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "BackendTLSPolicy",
        "metadata": {"name": service.name, "namespace": service.namespace},
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": service.name}],
            "validation": validation,
        },
    });
    let id = ObjectId::of(&policy);
    match draft.outputs.get(&id) {
        Some(known) if known.value != policy => return false,
        Some(_) => drop(draft.change(&id, source)),
        None => draft.add(source, policy),
    }
    true
}
