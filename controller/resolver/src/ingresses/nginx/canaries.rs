//! Canary Ingresses, which receive some of the requests for paths that they share with another
//! Ingress of the same namespace and class.
//!
//! The other Ingress's settings apply to all requests, including the canary's. As in ingress-nginx,
//! a header takes precedence over a cookie, and a cookie over the weight. Each path has at most one
//! canary.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use sesame_proto::expressions;
use sesame_proto::schema::{StringMatch, WeightedBackend, string_match};

use super::Annotations;
use super::values::{boolean, number};
use crate::ingresses::IngressClasses;
use crate::routes::matches::RouteMatch;
use crate::routes::rules::Action;
use crate::syntax::limits::MAX_WEIGHT;
use crate::syntax::names;
use crate::syntax::regexes;
use sesame_kinds::api::{Ingress, IngressBackend, IngressPath, Metadata, NGINX_PREFIX};

#[derive(Default)]
pub(in super::super) struct Canaries<'w> {
    by_path: BTreeMap<PathKey<'w>, Canary<'w>>,
    /// Paths that a canary shares with another Ingress.
    paths: BTreeSet<PathKey<'w>>,
}

/// Namespace, class, host, path type and path.
type PathKey<'w> = (&'w str, &'w str, &'w str, &'w str, &'w str);

pub(in super::super) struct Canary<'w> {
    ingress: &'w Ingress,
    pub(in super::super) backend: &'w IngressBackend,
    /// Invalid annotations count as unset.
    pub(in super::super) choice: Rc<CanaryChoice>,
}

#[derive(Default)]
pub(in super::super) struct CanaryChoice {
    /// Conditions in order of precedence, with their costs. The flag is false if matching requests
    /// never reach the canary.
    pub(in super::super) conditions: Vec<(StringMatch, u64, bool)>,
    pub(super) weight: u32,
    /// Sum of both weights, at least 1.
    pub(super) total: u32,
}

/// An invalid value counts as true, because the canary must not compete with the main Ingress.
pub(in super::super) fn is_canary(ingress: &Ingress) -> bool {
    let value = ingress
        .metadata
        .annotations
        .get(&format!("{NGINX_PREFIX}canary"));
    value.is_some_and(|value| boolean(value) != Ok(false))
}

impl<'w> Canaries<'w> {
    /// If several canaries have the same path, the oldest takes precedence.
    pub(in super::super) fn of(ingresses: &[&'w Ingress], classes: &IngressClasses<'w>) -> Self {
        let with_class = ingresses.iter().filter_map(|ingress| {
            let (class, _) = classes.find(ingress)?;
            classes.reads_nginx(class).then_some((*ingress, class))
        });
        let (canaries, others): (Vec<_>, Vec<_>) =
            with_class.partition(|(ingress, _)| is_canary(ingress));
        let mut all = Self::default();
        for (ingress, class) in canaries {
            let choice = Rc::new(CanaryChoice::read(ingress).0);
            for (key, path) in keys(ingress, class) {
                all.by_path.entry(key).or_insert_with(|| Canary {
                    ingress,
                    backend: &path.backend,
                    choice: Rc::clone(&choice),
                });
            }
        }
        if !all.by_path.is_empty() {
            let keys = others.into_iter().flat_map(|(it, class)| keys(it, class));
            let shared = keys.filter(|(key, _)| all.by_path.contains_key(key));
            all.paths = shared.map(|(key, _)| key).collect();
        }
        all
    }

    pub(in super::super) fn find(
        &self,
        ingress: &'w Ingress,
        class: &'w str,
        (host, path): (&'w str, &'w IngressPath),
    ) -> Option<&Canary<'w>> {
        self.by_path.get(&key(ingress, class, host, path))
    }

    pub(in super::super) fn without_effect(
        &self,
        canary: &'w Ingress,
        class: &'w str,
    ) -> Option<String> {
        let name = &canary.metadata.name;
        if keys(canary, class).next().is_none() {
            return Some("the canary has no effect: it has no path in spec.rules".to_owned());
        }
        keys(canary, class).find_map(|(key, path)| {
            let why = if !self.paths.contains(&key) {
                "no other Ingress in its namespace and class has the same host, path and pathType"
            } else if self.by_path.get(&key)?.ingress.metadata.name != *name {
                "an older canary has the same path"
            } else {
                return None;
            };
            let path = &path.path;
            Some(format!("path {path:?} of the canary has no effect: {why}"))
        })
    }
}

pub(in super::super) fn ignored_annotations(metadata: &Metadata) -> Option<String> {
    let names = metadata.annotations.iter().map(|(name, _)| name);
    let names = names.filter(|name| {
        let name = name.strip_prefix(NGINX_PREFIX);
        name.is_some_and(|name| name != "canary" && !name.starts_with("canary-"))
    });
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| {
        format!(
            "metadata.annotations that have no effect on a canary: {}; set them on the Ingress whose \
             requests it receives",
            names.join(", ")
        )
    })
}

impl Canary<'_> {
    /// Maximum number of conditions: two header values and two cookie values.
    pub(in super::super) const MAX_CONDITIONS: usize = 4;
}

fn keys<'w>(
    ingress: &'w Ingress,
    class: &'w str,
) -> impl Iterator<Item = (PathKey<'w>, &'w IngressPath)> {
    ingress.spec.rules.iter().flat_map(move |rule| {
        let paths = rule.http.iter().flat_map(|http| &http.paths);
        paths.map(move |path| (key(ingress, class, &rule.host, path), path))
    })
}

fn key<'w>(
    ingress: &'w Ingress,
    class: &'w str,
    host: &'w str,
    path: &'w IngressPath,
) -> PathKey<'w> {
    let namespace = &ingress.metadata.namespace;
    (namespace, class, host, &path.path_type, &path.path)
}

impl CanaryChoice {
    pub(in super::super) fn read(ingress: &Ingress) -> (Self, Vec<String>) {
        let mut from = Annotations::of(&ingress.metadata);
        let choice = Self::read_from(&mut from);
        (choice, from.notes)
    }

    pub(super) fn read_from(from: &mut Annotations<'_>) -> Self {
        from.read("canary", boolean);
        let mut conditions = Vec::new();
        let header = from.read("canary-by-header", |name| {
            names::check_token(format_args!("header"), name).map(|()| name.to_lowercase())
        });
        if let Some(header) = header {
            let value = from.read("canary-by-header-value", |it| Ok(exact(it)));
            let pattern = from.read("canary-by-header-pattern", |it| {
                let invalid = |why| format!("{it:?} {why}");
                regexes::check(it).map_err(invalid)?;
                let pattern = format!(".*({it}).*");
                let cost = regexes::check(&pattern).map_err(invalid)?;
                Ok((string_match::Kind::Regex(pattern), cost))
            });
            let is = |kind| StringMatch {
                name: header.clone(),
                kind: Some(kind),
            };
            if let Some((kind, cost)) = value.map(|kind| (kind, 0)).or(pattern) {
                conditions.push((is(kind), cost, true));
            } else {
                conditions.push((is(exact("always")), 0, true));
                conditions.push((is(exact("never")), 0, false));
            }
        }
        let cookie = from.read("canary-by-cookie", |name| {
            names::check_token(format_args!("cookie"), name).map(|()| name.to_owned())
        });
        for (value, taken) in [("always", true), ("never", false)] {
            let condition = cookie.as_deref().map(|name| cookie_is(name, value));
            let condition = condition.map(|(condition, cost)| (condition, cost, taken));
            conditions.extend(condition);
        }
        let total = from.read("canary-weight-total", |text| number(text, 1..=MAX_WEIGHT));
        let total = total.unwrap_or(100);
        let weight = from.read("canary-weight", |text| number(text, 0..=total));
        Self {
            conditions,
            weight: weight.unwrap_or_default(),
            total,
        }
    }

    /// The weight applies to requests that match none of the conditions.
    pub(in super::super) fn weighted(&self, main: Action, canary: &Action) -> Action {
        let Action::Forward(mut forward) = main else {
            return main;
        };
        let rest = self.total.saturating_sub(self.weight);
        if self.weight == 0 {
            return Action::Forward(forward);
        }
        let share = match canary {
            Action::Forward(canary) => canary.backends.first().cloned().unwrap_or_default(),
            // An invalid canary's share of the requests gets 503.
            Action::Redirect(_) | Action::Respond(_) => {
                forward.unavailable = true;
                WeightedBackend::default()
            }
        };
        for backend in &mut forward.backends {
            backend.weight = rest;
        }
        forward.backends.push(WeightedBackend {
            weight: self.weight,
            ..share
        });
        Action::Forward(forward)
    }
}

fn exact(value: &str) -> string_match::Kind {
    string_match::Kind::Exact(value.to_owned())
}

fn cookie_is(name: &str, value: &str) -> (StringMatch, u64) {
    let name = regex::escape(name);
    let pattern = format!("(.*; *)?{name}={value}( *;.*)?");
    let cost = expressions::instructions(&pattern).unwrap_or(u64::MAX);
    let matches = StringMatch {
        name: "cookie".to_owned(),
        kind: Some(string_match::Kind::Regex(pattern)),
    };
    (matches, cost)
}

pub(in super::super) fn with_condition(
    route_match: &RouteMatch,
    (condition, cost): (&StringMatch, u64),
) -> RouteMatch {
    let mut narrowed = route_match.clone();
    narrowed.headers.push(condition.clone());
    narrowed.instructions = narrowed.instructions.saturating_add(cost);
    narrowed
}
