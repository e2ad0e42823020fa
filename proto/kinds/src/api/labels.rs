//! A compact map of labels. A `BTreeMap` would allocate half a kilobyte for its first entry, too
//! much for the many labeled objects in a cluster.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// Labels by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// Returns the value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self
            .0
            .binary_search_by(|(label, _)| label.as_ref().cmp(key))
            .ok()?;
        self.0.get(at).map(|(_, value)| value.as_ref())
    }

    /// Returns all labels, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Labels {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(labels: T) -> Self {
        // `BTreeMap` sorts the labels and keeps the last value of each key.
        let ordered: BTreeMap<Box<str>, Box<str>> = labels
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        Self(ordered.into_iter().collect())
    }
}

/// Annotation on Services: with `Auto`, endpoints in the client's zone are preferred.
pub const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
/// Default of the controller's name in GatewayClasses.
pub const CONTROLLER_NAME: &str = "projectsesame.io/gateway-controller";
/// Annotation that sets the class of an Ingress. It takes precedence over `spec.ingressClassName`.
pub const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";
/// Annotation that makes an IngressClass the default for Ingresses without a class.
pub const DEFAULT_INGRESS_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";
/// Annotation that, if `false`, prevents an Ingress from being served in plaintext.
pub const ALLOW_HTTP: &str = "kubernetes.io/ingress.allow-http";
/// Annotation that, if `true`, redirects plaintext requests for an Ingress to HTTPS.
pub const FORCE_SSL_REDIRECT: &str = "ingress.kubernetes.io/force-ssl-redirect";

/// Annotation that sets the class of an HTTPProxy. It takes precedence over all other class
/// settings.
pub const CONTOUR_CLASS: &str = "projectcontour.io/ingress.class";
/// Prefix for Contour's annotations; Sesame reads some of them.
pub const CONTOUR_PREFIX: &str = "projectcontour.io/";
/// Prefix for ingress-nginx's annotations. Sesame reads some of them if `ANNOTATION_DIALECT` is set
/// on the IngressClass.
pub const NGINX_PREFIX: &str = "nginx.ingress.kubernetes.io/";
/// Annotation of an IngressClass that names another Ingress controller. That controller's
/// annotations then also apply to Ingresses of the class.
pub const ANNOTATION_DIALECT: &str = "projectsesame.io/annotations";
/// Maximum number of characters kept from a Contour annotation's value.
pub const MAX_CONTOUR_CHARACTERS: usize = 1024;
/// Maximum number of characters kept from an ingress-nginx annotation's value. A value of this
/// length may have been truncated, so it is treated as invalid.
pub const MAX_NGINX_CHARACTERS: usize = 8 * 1024;

/// Label on ConfigMaps that contain fetched key sets. Its value is a digest of the controller's
/// name.
pub const KEY_SET_LABEL: &str = "projectsesame.io/key-set";

/// Annotation prefixes for other Ingress controllers, and the maximum number of characters kept
/// from each value.
pub const FOREIGN_ANNOTATIONS: [(&str, usize); 2] = [
    (NGINX_PREFIX, MAX_NGINX_CHARACTERS),
    (CONTOUR_PREFIX, MAX_CONTOUR_CHARACTERS),
];

/// Keeps only the annotations of Sesame and of Ingress controllers, because others may be very
/// large.
pub(super) fn own_annotations<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Labels, D::Error> {
    let all = Option::<BTreeMap<Cow<'de, str>, Cow<'de, str>>>::deserialize(deserializer)?;
    let ingress_keys = [
        INGRESS_CLASS,
        DEFAULT_INGRESS_CLASS,
        ALLOW_HTTP,
        FORCE_SSL_REDIRECT,
        TOPOLOGY_MODE,
    ];
    let own = all.into_iter().flatten().filter_map(|(key, value)| {
        if key.starts_with("projectsesame.io/") || ingress_keys.contains(&&*key) {
            return Some((key.into_owned(), value.into_owned()));
        }
        let (_, most) = FOREIGN_ANNOTATIONS
            .into_iter()
            .find(|(of, _)| key.starts_with(of))?;
        Some((key.into_owned(), value.chars().take(most).collect()))
    });
    Ok(own.collect())
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let labels = BTreeMap::<String, String>::deserialize(deserializer)?;
        Ok(labels.into_iter().collect())
    }
}
