//! Decides whether an object may refer to an object in another namespace. Every such reference
//! requires a ReferenceGrant or, for some Secrets, a TLSCertificateDelegation.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sesame_kinds::api::{CONTOUR_GROUP, INGRESS_GROUP, ReferenceGrant, ReferenceGrantSpec};
use sesame_kinds::world::{Kind, World};

/// Grants are keyed by granting and receiving namespace.
pub(crate) struct Grants<'w> {
    by_namespaces: HashMap<(&'w str, &'w str), Vec<&'w ReferenceGrantSpec>>,
    /// Namespaces that may reference each Secret. `*` means all namespaces.
    delegated: HashMap<(&'w str, &'w str), Vec<&'w [String]>>,
}

/// The referring object, as in a grant's `from`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Referrer<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
}

impl<'a> Referrer<'a> {
    pub(crate) fn new(kind: Kind, namespace: &'a str) -> Self {
        Self {
            group: kind.group(),
            kind: kind.as_str(),
            namespace,
        }
    }
}

/// The referenced object, as in a grant's `to`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Referent<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> Referent<'a> {
    pub(crate) fn new(kind: Kind, namespace: &'a str, name: &'a str) -> Self {
        Self {
            group: kind.group(),
            kind: kind.as_str(),
            namespace,
            name,
        }
    }
}

impl<'w> Grants<'w> {
    pub(crate) fn new(world: &'w World) -> Self {
        let mut grants: HashMap<(&str, &str), Vec<&ReferenceGrantSpec>> = HashMap::new();
        // Ignore a grant with an unknown field, because the field might narrow the grant.
        let understood =
            |grant: &&Arc<ReferenceGrant>| grant.metadata.unknown.refusal("").is_none();
        for grant in world.reference_grants.iter().filter(understood) {
            let receivers: BTreeSet<&str> = grant
                .spec
                .from
                .iter()
                .map(|from| from.namespace.as_str())
                .collect();
            for receiver in receivers {
                let grants = grants
                    .entry((&grant.metadata.namespace, receiver))
                    .or_default();
                grants.push(&grant.spec);
            }
        }
        let mut delegated: HashMap<(&str, &str), Vec<&[String]>> = HashMap::new();
        for object in &world.tls_certificate_delegations {
            let own = object.metadata.namespace.as_str();
            let understood = object.metadata.unknown.refusal("").is_none();
            for delegation in object.spec.delegations.iter().filter(|_| understood) {
                let secret = (own, delegation.secret_name.as_str());
                let targets = delegation.target_namespaces.as_slice();
                delegated.entry(secret).or_default().push(targets);
            }
        }
        Self {
            by_namespaces: grants,
            delegated,
        }
    }

    pub(crate) fn check(&self, from: Referrer<'_>, to: Referent<'_>) -> Result<(), String> {
        if self.permit(from, to) {
            return Ok(());
        }
        Err(format!(
            "no ReferenceGrant in namespace {:?} lets a {} in namespace {:?} refer to {} {:?}",
            to.namespace, from.kind, from.namespace, to.kind, to.name
        ))
    }

    /// Every `from` applies to every `to`. A `to` without a name allows all objects of its kind.
    fn permit(&self, from: Referrer<'_>, to: Referent<'_>) -> bool {
        if from.namespace == to.namespace {
            return true;
        }
        if self.delegates(from, to) {
            return true;
        }
        self.by_namespaces
            .get(&(to.namespace, from.namespace))
            .is_some_and(|grants| {
                grants.iter().any(|grant| {
                    grant.from.iter().any(|entry| {
                        entry.group == from.group
                            && entry.kind == from.kind
                            && entry.namespace == from.namespace
                    }) && grant.to.iter().any(|entry| {
                        entry.group == to.group
                            && entry.kind == to.kind
                            && entry.name.as_deref().is_none_or(|name| name == to.name)
                    })
                })
            })
    }
}

impl Grants<'_> {
    /// As in Contour, `*` is only effective as the sole entry.
    fn delegates(&self, from: Referrer<'_>, to: Referent<'_>) -> bool {
        let is_known = [CONTOUR_GROUP, INGRESS_GROUP].contains(&from.group);
        if !is_known || to.kind != "Secret" || !to.group.is_empty() {
            return false;
        }
        let delegations = self.delegated.get(&(to.namespace, to.name));
        delegations
            .into_iter()
            .flatten()
            .any(|targets| match targets {
                [one] if one == "*" => true,
                targets => targets.iter().any(|target| target == from.namespace),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sesame_kinds::api::{GrantFrom, GrantTo, Metadata};
    use sesame_kinds::world::AnyObject;

    const ROUTE: Referrer<'static> = Referrer {
        group: "gateway.networking.k8s.io",
        kind: "HTTPRoute",
        namespace: "web",
    };

    fn world(to_name: Option<&str>) -> World {
        let mut world = World::default();
        let from = |kind: &str| GrantFrom {
            group: ROUTE.group.to_owned(),
            kind: kind.to_owned(),
            namespace: "web".to_owned(),
        };
        let to = |kind: &str, name: Option<&str>| GrantTo {
            group: String::new(),
            kind: kind.to_owned(),
            name: name.map(str::to_owned),
        };
        world.insert(AnyObject::ReferenceGrant(Arc::new(ReferenceGrant {
            metadata: Metadata {
                name: "grant".to_owned(),
                namespace: "shop".to_owned(),
                ..Metadata::default()
            },
            spec: ReferenceGrantSpec {
                from: vec![from("TLSRoute"), from("HTTPRoute")],
                to: vec![to("Secret", None), to("Service", to_name)],
            },
        })));
        world
    }

    #[test]
    fn grant_permits_only_listed_references() {
        let service = Referent {
            group: "",
            kind: "Service",
            namespace: "shop",
            name: "cart",
        };
        for (to_name, from, to, permitted) in [
            (None, ROUTE, service, true),
            (Some("cart"), ROUTE, service, true),
            (Some("pay"), ROUTE, service, false),
            (
                None,
                Referrer {
                    kind: "GRPCRoute",
                    ..ROUTE
                },
                service,
                false,
            ),
            (
                None,
                Referrer {
                    namespace: "other",
                    ..ROUTE
                },
                service,
                false,
            ),
            (None, Referrer { group: "", ..ROUTE }, service, false),
            (
                None,
                ROUTE,
                Referent {
                    kind: "ConfigMap",
                    ..service
                },
                false,
            ),
            (
                None,
                ROUTE,
                Referent {
                    namespace: "pay",
                    ..service
                },
                false,
            ),
            (
                Some("pay"),
                ROUTE,
                Referent {
                    namespace: "web",
                    ..service
                },
                true,
            ),
        ] {
            let world = world(to_name);
            assert_eq!(
                Grants::new(&world).permit(from, to),
                permitted,
                "{to_name:?} {from:?} {to:?}"
            );
        }
    }
}
