//! Collects rate limits and shared filters, up to a fair share per namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::refusal;
use sesame_proto::schema::{RateLimit, SharedFilter};

use crate::api::NamespacedName;
use crate::resolve::context::Problems;
use crate::resolve::policies::traffic::credentials::Credentials;
use crate::resolve::routes::Routes;
use crate::resolve::routes::attachments::AttachedListener;
use crate::resolve::tables::share;
use crate::world::{Kind, ObjectKey};

/// Includes unreachable routes, so the result does not depend on other routes. Routes with limits
/// beyond the share respond with 500.
pub(super) fn find<'a>(
    listeners: impl Iterator<Item = &'a AttachedListener<'a, 'a>>,
    routes: &Routes<'_>,
    problems: &mut Problems,
) -> Vec<RateLimit> {
    let mut by_name: BTreeMap<String, Arc<RateLimit>> = BTreeMap::new();
    let mut add = |limit: Arc<RateLimit>| {
        by_name.entry(limit.name.clone()).or_insert(limit);
    };
    for attached in listeners {
        let traffic = &attached.listener.traffic;
        traffic.rate_limits.iter().cloned().for_each(&mut add);
        let attachments = attached.attachments.iter();
        let routes = attachments.filter_map(|it| routes.get(it.route));
        let rules = routes.flat_map(|route| route.rules.of_requests());
        let limits = rules.flat_map(|rule| rule.limits_on(traffic));
        limits.for_each(&mut add);
    }
    keep_shares(&mut by_name, RateLimit::MAX, "request limits", problems);
    by_name.into_values().map(Arc::unwrap_or_clone).collect()
}

/// Shared filters, and the credentials that they check.
#[derive(Default)]
pub(super) struct SharedFilters {
    pub(super) filters: Vec<SharedFilter>,
    /// By name.
    pub(super) credentials: BTreeMap<String, Credentials>,
}

/// Includes unreachable routes, as in [`find`].
pub(super) fn shared_filters<'a>(
    listeners: impl Iterator<Item = &'a AttachedListener<'a, 'a>>,
    routes: &Routes<'_>,
    problems: &mut Problems,
) -> SharedFilters {
    let mut by_name: BTreeMap<String, SharedFilter> = BTreeMap::new();
    let mut credentials: BTreeMap<String, Credentials> = BTreeMap::new();
    for attached in listeners {
        let listener_filters = &attached.listener.traffic.filters;
        let attachments = attached.attachments.iter();
        let routes = attachments.filter_map(|it| routes.get(it.route));
        let rule_settings = routes.flat_map(|route| {
            let rules = route.rules.of_requests().iter();
            rules.filter_map(|rule| {
                listener_filters.of_rule(rule.filters.as_deref(), &route.provenance)
            })
        });
        for settings in std::iter::once(listener_filters.clone()).chain(rule_settings) {
            let new = settings.shared(|name| by_name.contains_key(name));
            by_name.extend(new.into_iter().map(|it| (it.name.clone(), it)));
            for checked in settings.credentials() {
                let name = &checked.check.name;
                if !credentials.contains_key(name) {
                    credentials.insert(name.clone(), checked.clone());
                }
            }
        }
    }
    keep_shares(
        &mut by_name,
        SharedFilter::MAX,
        "response, bandwidth and access filters",
        problems,
    );
    SharedFilters {
        filters: by_name.into_values().collect(),
        credentials,
    }
}

/// Removes and reports entries beyond a namespace's share if there are more than `most`.
fn keep_shares<T>(
    by_name: &mut BTreeMap<String, T>,
    most: usize,
    what: &str,
    problems: &mut Problems,
) {
    if by_name.len() <= most {
        return;
    }
    let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
    for name in by_name.keys() {
        *wanted.entry(namespace(name)).or_default() += 1;
    }
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    let each = share(wanted.into_values().collect(), most);
    let mut kept: BTreeMap<String, u64> = BTreeMap::new();
    let mut without: BTreeSet<ObjectKey> = BTreeSet::new();
    by_name.retain(|name, _| {
        let count = kept.entry(namespace(name).to_owned()).or_default();
        *count += 1;
        let has_room = *count <= each;
        without.extend(object(name).filter(|_| !has_room));
        has_room
    });
    for object in without {
        let message = format!(
            "its {what} are dropped, because its namespace may use only {each} of the Gateway's \
            {most}; requests that need them get {}",
            refusal::HTTP
        );
        problems.add(object, message);
    }
}

/// `name` has the form `Kind/namespace/name/…`.
fn namespace(name: &str) -> &str {
    name.split('/').nth(1).unwrap_or_default()
}

fn object(name: &str) -> Option<ObjectKey> {
    let mut parts = name.split('/');
    let kind = Kind::parse(parts.next()?)?;
    let name = NamespacedName::new(parts.next()?, parts.next()?);
    Some(kind.named(name))
}
