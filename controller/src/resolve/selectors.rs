//! From which namespaces routes may attach, and label selectors.

use crate::api::{
    AllowedNamespaces, FromNamespaces, LabelSelector, LabelSelectorRequirement, Labels,
    NamespacedName,
};
use crate::world::World;

/// The label that every namespace has, whether or not it is written (Kubernetes 1.22).
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Which namespaces are allowed.
#[derive(Clone, Copy, Debug)]
pub(super) enum NamespaceRule<'w> {
    All,
    Same(&'w str),
    Selected(&'w LabelSelector),
    /// The rule itself is invalid, so nothing is allowed.
    Nothing,
}

impl<'w> NamespaceRule<'w> {
    /// Reads `allowedRoutes.namespaces` of a listener of an object in namespace `own`. The error names what
    /// is wrong; then nothing is allowed.
    pub(super) fn read(
        namespaces: Option<&'w AllowedNamespaces>,
        own: &'w str,
    ) -> Result<Self, String> {
        let Some(AllowedNamespaces { from, selector }) = namespaces else {
            return Ok(Self::Same(own));
        };
        match from {
            None | Some(FromNamespaces::Same) => Ok(Self::Same(own)),
            Some(FromNamespaces::All) => Ok(Self::All),
            Some(FromNamespaces::Selector) => match selector {
                Some(selector) => check(selector).map(|()| Self::Selected(selector)),
                None => Err(
                    "allowedRoutes.namespaces.selector is required with `from: Selector`"
                        .to_owned(),
                ),
            },
            Some(other) => Err(format!(
                "allowedRoutes.namespaces.from {other:?} is unknown; expected All, Same or Selector",
                other = other.as_str()
            )),
        }
    }

    /// Whether objects in the namespace are allowed.
    pub(super) fn allows(self, namespace: &str, world: &World) -> bool {
        match self {
            Self::All => true,
            Self::Same(own) => own == namespace,
            Self::Selected(selector) => {
                let object = world.namespaces.get(&NamespacedName::new("", namespace));
                let labels = object.map(|object| &object.metadata.labels);
                matches(selector, labels, namespace)
            }
            Self::Nothing => false,
        }
    }
}

fn check(selector: &LabelSelector) -> Result<(), String> {
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
        let at = format!("allowedRoutes.namespaces.selector.matchExpressions[{i}]");
        if key.is_empty() {
            return Err(format!("{at}.key is empty"));
        }
        match (operator.as_str(), values.is_empty()) {
            ("In" | "NotIn", true) => {
                return Err(format!(
                    "{at}.values is empty; {operator} needs at least one"
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

/// Whether a checked selector selects a namespace with these labels; an empty selector selects all.
fn matches(selector: &LabelSelector, labels: Option<&Labels>, name: &str) -> bool {
    let label = |key: &str| match labels.and_then(|labels| labels.get(key)) {
        Some(value) => Some(value),
        None => (key == NAME_LABEL).then_some(name),
    };
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

    use super::*;

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
        let labels: Labels = [("team", "a")].into_iter().collect();
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
            check(&selector).expect("valid");
            assert_eq!(
                matches(&selector, Some(&labels), "web"),
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
        let rule = NamespaceRule::Selected(&selector);
        assert!(rule.allows("web", &World::default()));
        assert!(!rule.allows("shop", &World::default()));
    }

    #[test]
    fn invalid_selectors_allow_nothing() {
        for bad in [
            selector("a", "in", &["b"]),
            selector("a", "In", &[]),
            selector("", "Exists", &[]),
        ] {
            assert!(check(&bad).is_err());
        }
    }
}
