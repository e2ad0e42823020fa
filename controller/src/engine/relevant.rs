//! Finds the Services and Pods that affect the result of resolution.

use std::collections::{BTreeMap, HashMap, HashSet};

use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{AnyObject, World, references};

type Selector = BTreeMap<String, String>;

#[derive(Debug, Default)]
pub(super) struct Relevant {
    services: HashSet<NamespacedName>,
    selectors: HashMap<String, Vec<Selector>>,
}

impl Relevant {
    /// Includes objects that only other controllers' objects reference.
    pub(super) fn of(world: &World) -> Self {
        let mut services = HashSet::new();
        references::each(world, |_, reference| {
            services.insert((reference.namespace, reference.name));
        });
        let own = |(namespace, name): (&str, &str)| NamespacedName::new(namespace, name);
        let mut selectors: HashMap<String, Vec<Selector>> = HashMap::new();
        for backend in &world.x_backends {
            if let Some(selector) = &backend.spec.endpoint_selector {
                let namespace = backend.metadata.namespace.clone();
                let namespace_selectors = selectors.entry(namespace).or_default();
                namespace_selectors.push(selector.match_labels.clone());
            }
        }
        Self {
            services: services.into_iter().map(own).collect(),
            selectors,
        }
    }

    pub(super) fn holds(&self, object: &AnyObject) -> bool {
        match object {
            AnyObject::Service(service) => self.services.contains(&service.metadata.key()),
            AnyObject::Pod(pod) => {
                let labels = &pod.metadata.labels;
                let selectors = self.selectors.get(&pod.metadata.namespace);
                selectors.into_iter().flatten().any(|selector| {
                    let mut wanted = selector.iter();
                    wanted.all(|(key, value)| labels.get(key) == Some(value))
                })
            }
            _ => true,
        }
    }
}
