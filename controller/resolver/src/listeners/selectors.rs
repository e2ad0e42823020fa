//! Validates and matches label selectors.

use sesame_kinds::api::{LabelSelector, LabelSelectorRequirement, Labels};
use sesame_kinds::world::World;

/// Kubernetes 1.22 and later add this label to every namespace, even if a manifest omits it.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(crate) fn check(at: &str, selector: &LabelSelector) -> Result<(), String> {
    let LabelSelector {
        match_labels: _,
        match_expressions,
    } = selector;
    for (i, expression) in match_expressions.iter().enumerate() {
        let LabelSelectorRequirement {
            key,
            operator,
            values,
        } = expression;
        let at = format!("{at}.matchExpressions[{i}]");
        if key.is_empty() {
            return Err(format!("{at}.key is empty"));
        }
        match (operator.as_str(), values.is_empty()) {
            ("In" | "NotIn", true) => {
                return Err(format!(
                    "{at}.values is empty; {operator} requires at least one value"
                ));
            }
            ("Exists" | "DoesNotExist", false) => {
                return Err(format!("{at}.values must be empty with {operator}"));
            }
            ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => {}
            _ => {
                return Err(format!(
                    "{at}.operator {operator:?} is unknown; expected In, NotIn, Exists or DoesNotExist"
                ));
            }
        }
    }
    Ok(())
}

/// The selector must be valid. An empty selector selects all namespaces.
pub(crate) fn selects_namespace(selector: &LabelSelector, name: &str, world: &World) -> bool {
    let object = world.namespaces.get("", name);
    let labels = object.map(|object| &object.metadata.labels);
    selects(selector, |key| {
        let label = labels.and_then(|labels| labels.get(key));
        label.or_else(|| (key == NAME_LABEL).then_some(name))
    })
}

/// The selector must be valid. An empty selector selects all objects.
pub(crate) fn selects_labels(selector: &LabelSelector, labels: &Labels) -> bool {
    selects(selector, |key| labels.get(key))
}

fn selects<'l>(selector: &LabelSelector, label: impl Fn(&str) -> Option<&'l str>) -> bool {
    selector
        .match_labels
        .iter()
        .all(|(key, value)| label(key) == Some(value.as_str()))
        && selector.match_expressions.iter().all(|expression| {
            let value = label(&expression.key);
            let listed = || value.is_some_and(|v| expression.values.iter().any(|w| w == v));
            match expression.operator.as_str() {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use sesame_kinds::api::{Metadata, Namespace};
    use sesame_kinds::world::AnyObject;

    fn selector(key: &str, operator: &str, values: &[&str]) -> LabelSelector {
        LabelSelector {
            match_labels: BTreeMap::new(),
            match_expressions: vec![LabelSelectorRequirement {
                key: key.to_owned(),
                operator: operator.to_owned(),
                values: values.iter().map(|v| (*v).to_owned()).collect(),
            }],
        }
    }

    #[test]
    fn expressions() {
        let mut world = World::default();
        let namespace = Namespace {
            metadata: Metadata {
                name: "web".to_owned(),
                labels: [("team", "a")].into_iter().collect(),
                ..Metadata::default()
            },
        };
        world.insert(AnyObject::Namespace(Arc::new(namespace)));
        for (selector, expected) in [
            (LabelSelector::default(), true),
            (selector("team", "In", &["a", "b"]), true),
            (selector("team", "In", &["b"]), false),
            (selector("team", "NotIn", &["a"]), false),
            (selector("none", "NotIn", &["a"]), true),
            (selector("team", "Exists", &[]), true),
            (selector("none", "DoesNotExist", &[]), true),
            (selector(NAME_LABEL, "In", &["web"]), true),
            (selector(NAME_LABEL, "In", &["shop"]), false),
        ] {
            check("at", &selector).expect("valid");
            assert_eq!(
                selects_namespace(&selector, "web", &world),
                expected,
                "{selector:?}"
            );
        }
    }

    #[test]
    fn the_name_label_needs_no_namespace_object() {
        let selector = LabelSelector {
            match_labels: BTreeMap::from([(NAME_LABEL.to_owned(), "web".to_owned())]),
            ..LabelSelector::default()
        };
        let world = World::default();
        assert!(selects_namespace(&selector, "web", &world));
        assert!(!selects_namespace(&selector, "shop", &world));
        assert!(!selects_labels(&selector, &Labels::default()));
    }

    #[test]
    fn invalid_selectors_allow_nothing() {
        for bad in [
            selector("a", "in", &["b"]),
            selector("a", "In", &[]),
            selector("", "Exists", &[]),
        ] {
            assert!(check("at", &bad).is_err());
        }
    }
}
