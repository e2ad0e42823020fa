//! Values that gRPC authorization services receive with each check.
//!
//! Envoy reads these values from a filter's configuration for the route or the virtual host. The
//! route's configuration already contains the filter itself, so the context must be in the virtual
//! host's. Therefore, each distinct context of a virtual host occupies one of the [`FILTERS`].
//! Never let a service receive another service's context.

use envoy_types::pb::envoy::extensions::filters::http::ext_authz::v3::{
    CheckSettings, ExtAuthzPerRoute, ext_authz_per_route::Override,
};
use envoy_types::pb::google::protobuf::Any;
use prost::{Message as _, Name as _};
use sesame_proto::schema::{ContextValue, ExternalAuth, Route};

use super::external_auth::FILTERS;
use super::oidc::login_of;

/// The contexts of a virtual host, which occupy the last places in [`FILTERS`], in reverse order.
#[derive(Debug, Default)]
pub(crate) struct HostContexts<'h>(Vec<&'h [ContextValue]>);

impl<'h> HostContexts<'h> {
    /// Contexts get only places that no route needs for authorizations without a context.
    pub(crate) fn of_routes(routes: &'h [Route]) -> Self {
        let mut contexts: Vec<&[ContextValue]> = Vec::new();
        let mut without = 0;
        for route in routes {
            let auths = || {
                let auths = route.external_auth.iter();
                auths.filter(|auth| login_of(auth).is_none())
            };
            without = without.max(auths().filter(|it| it.context.is_empty()).count());
            let with = auths().filter(|it| !it.context.is_empty());
            for ExternalAuth { context, .. } in with.take(FILTERS.len()) {
                if contexts.len() < FILTERS.len() && !contexts.contains(&context.as_slice()) {
                    contexts.push(context);
                }
            }
        }
        contexts.truncate(FILTERS.len().saturating_sub(without));
        Self(contexts)
    }

    pub(crate) fn filters(&self) -> impl Iterator<Item = (&'static str, Any)> {
        let contexts = FILTERS.iter().rev().zip(&self.0);
        contexts.map(|(place, context)| (*place, config(context)))
    }

    /// Returns the authorizations' places, in call order.
    pub(crate) fn places<'a>(
        &self,
        auths: impl IntoIterator<Item = &'a ExternalAuth>,
    ) -> Result<Vec<&'static str>, String> {
        let mut next = 0;
        let mut places = Vec::new();
        for auth in auths {
            let place = if auth.context.is_empty() {
                Some(next).filter(|place| place + self.0.len() < FILTERS.len())
            } else {
                let mut contexts = self.0.iter();
                let at = contexts.position(|context| *context == auth.context);
                at.map(|at| FILTERS.len() - 1 - at)
            };
            let place = place.filter(|place| *place >= next);
            let place = place.and_then(|place| Some((place, *FILTERS.get(place)?)));
            let Some((place, name)) = place else {
                return Err(format!(
                    "the routes of its host have too many different authorization contexts; \
                     contexts, and authorizations without a context, share {} places",
                    FILTERS.len()
                ));
            };
            next = place + 1;
            places.push(name);
        }
        Ok(places)
    }
}

fn config(context: &[ContextValue]) -> Any {
    let mut value = Vec::new();
    for ContextValue {
        name,
        value: content,
    } in context
    {
        // Encode entries one by one, because prost writes map entries in random order. Readers
        // merge them.
        let entry = ExtAuthzPerRoute {
            r#override: Some(Override::CheckSettings(CheckSettings {
                context_extensions: [(name.clone(), content.clone())].into(),
                ..Default::default()
            })),
        };
        entry.encode_raw(&mut value);
    }
    Any {
        type_url: ExtAuthzPerRoute::type_url(),
        value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth(value: &str) -> ExternalAuth {
        let context = (!value.is_empty()).then(|| ContextValue {
            name: "team".to_owned(),
            value: value.to_owned(),
        });
        ExternalAuth {
            context: context.into_iter().collect(),
            ..ExternalAuth::default()
        }
    }

    fn routes(auths: &[&[&str]]) -> Vec<Route> {
        let route = |values: &&[&str]| Route {
            external_auth: values.iter().copied().map(auth).collect(),
            ..Route::default()
        };
        auths.iter().map(route).collect()
    }

    #[test]
    fn contexts_never_share_places_with_other_checks() {
        let three = routes(&[&["", "a"], &["b"], &[""], &["a"]]);
        let contexts = HostContexts::of_routes(&three);
        let places: Vec<_> = three
            .iter()
            .map(|route| contexts.places(&route.external_auth).expect("places"))
            .collect();
        let [first, _, third, fourth] = FILTERS;
        assert_eq!(
            places,
            [vec![first, fourth], vec![third], vec![first], vec![fourth]]
        );
        let configured: Vec<_> = contexts.filters().map(|(place, _)| place).collect();
        assert_eq!(configured, [fourth, third]);
    }

    #[test]
    fn too_many_contexts_are_refused() {
        let many = routes(&[&["", "", "", "a"], &["b"], &["a"]]);
        let contexts = HostContexts::of_routes(&many);
        let placed: Vec<bool> = many
            .iter()
            .map(|route| contexts.places(&route.external_auth).is_ok())
            .collect();
        assert_eq!(placed, [true, false, true]);
    }

    #[test]
    fn context_is_encoded_in_order() {
        let value = |name: &str| ContextValue {
            name: name.to_owned(),
            value: name.to_uppercase(),
        };
        let all: Vec<ContextValue> = ["a", "b", "c"].map(value).into();
        let decoded = ExtAuthzPerRoute::decode(&*config(&all).value).expect("a message");
        let Some(Override::CheckSettings(settings)) = decoded.r#override else {
            panic!("no settings");
        };
        let expected = all.into_iter().map(|it| (it.name, it.value));
        assert_eq!(settings.context_extensions, expected.collect());
    }
}
