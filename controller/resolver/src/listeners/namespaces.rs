//! Namespaces from which routes and ListenerSets may attach.

use super::selectors;
use sesame_kinds::api::{AllowedNamespaces, FromNamespaces, LabelSelector};
use sesame_kinds::world::World;

#[derive(Clone, Copy, Debug)]
pub(crate) enum NamespaceRule<'w> {
    All,
    Same(&'w str),
    Selected(&'w LabelSelector),
    /// No namespace may attach, either as configured or because the configuration is invalid.
    Nothing,
}

impl<'w> NamespaceRule<'w> {
    /// By default, only `own` is allowed.
    pub(crate) fn of_routes(
        namespaces: Option<&'w AllowedNamespaces>,
        own: &'w str,
    ) -> Result<Self, String> {
        Self::read("allowedRoutes.namespaces", namespaces, own, Self::Same(own))
    }

    /// By default, no namespace is allowed.
    pub(crate) fn of_listener_sets(
        namespaces: Option<&'w AllowedNamespaces>,
        own: &'w str,
    ) -> Result<Self, String> {
        let at = "allowedListeners.namespaces";
        Self::read(at, namespaces, own, Self::Nothing)
    }

    /// `absent` is the result if `from` is unset.
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
                let at = format!("{at}.selector");
                selectors::check(&at, selector).map(|()| Self::Selected(selector))
            }
            (FromNamespaces::Selector, None, _) => {
                Err(format!("{at}.selector is required with `from: Selector`"))
            }
            // `from: None` is only valid in `allowedListeners`.
            (FromNamespaces::None, _, Self::Nothing) => Ok(Self::Nothing),
            (FromNamespaces::None | FromNamespaces::Other(_), ..) => Err(format!(
                "{at}.from {:?} is unknown; expected All, Same or Selector",
                from.as_str()
            )),
        }
    }

    pub(crate) fn allows(self, namespace: &str, world: &World) -> bool {
        match self {
            Self::All => true,
            Self::Same(own) => own == namespace,
            Self::Selected(selector) => selectors::selects_namespace(selector, namespace, world),
            Self::Nothing => false,
        }
    }
}
