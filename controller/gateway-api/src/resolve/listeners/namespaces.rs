//! Namespaces from which routes and ListenerSets may attach, and label selectors.

use crate::api::{
    AllowedNamespaces, FromNamespaces, LabelSelector, LabelSelectorRequirement, Labels,
};
use crate::world::World;

/// The label that every namespace has, whether or not it is written (Kubernetes 1.22).
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The namespaces that are allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NamespaceRule<'w> {
    All,
    Same(&'w str),
    Selected(&'w LabelSelector),
    /// No namespace: by choice, or because the rule is invalid.
    Nothing,
}

impl<'w> NamespaceRule<'w> {
    /// Reads `allowedRoutes.namespaces` of a listener of an object in namespace `own`. The error names what
    /// is wrong; then nothing is allowed.
    pub(crate) fn of_routes(
        namespaces: Option<&'w AllowedNamespaces>,
        own: &'w str,
    ) -> Result<Self, String> {
        Self::read("allowedRoutes.namespaces", namespaces, own, Self::Same(own))
    }

    /// Reads `allowedListeners.namespaces` of a Gateway in namespace `own`, which allows nothing by itself.
    pub(crate) fn of_listener_sets(
        namespaces: Option<&'w AllowedNamespaces>,
        own: &'w str,
    ) -> Result<Self, String> {
        let at = "allowedListeners.namespaces";
        Self::read(at, namespaces, own, Self::Nothing)
    }

    /// Reads a field that means `absent` if it is not there.
    fn read(
        at: &str,
        namespaces: Option<&'w AllowedNamespaces>,
        own: &'w str,
        absent: Self,
    ) -> Result<Self, String> {
        let Some(AllowedNamespaces {
            from: Some(from),
            selector,
        }) = namespaces
        else {
            return Ok(absent);
        };
        match (from, selector, absent) {
            (FromNamespaces::Same, ..) => Ok(Self::Same(own)),
            (FromNamespaces::All, ..) => Ok(Self::All),
            (FromNamespaces::Selector, Some(selector), _) => {
                check(at, selector).map(|()| Self::Selected(selector))
            }
            (FromNamespaces::Selector, None, _) => {
                Err(format!("{at}.selector is required with `from: Selector`"))
            }
            // Only ListenerSets may be shut out by choice.
            (FromNamespaces::None, _, Self::Nothing) => Ok(Self::Nothing),
            (FromNamespaces::None | FromNamespaces::Other(_), ..) => Err(format!(
                "{at}.from {:?} is unknown; expected All, Same or Selector",
                from.as_str()
            )),
        }
    }

    /// Returns true if objects in the namespace are allowed.
    pub(crate) fn allows(self, namespace: &str, world: &World) -> bool {
        match self {
            Self::All => true,
            Self::Same(own) => own == namespace,
            Self::Selected(selector) => {
                let object = world.namespaces.get("", namespace);
                let labels = object.map(|object| &object.metadata.labels);
                matches(selector, labels, namespace)
            }
            Self::Nothing => false,
        }
    }
}

fn check(at: &str, selector: &LabelSelector) -> Result<(), String> {
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
        let at = format!("{at}.selector.matchExpressions[{i}]");
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

/// Returns true if a checked selector selects a namespace with these labels; an empty selector selects all.
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
            check("at", &selector).expect("valid");
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
            assert!(check("at", &bad).is_err());
        }
    }
}
