//! The limits of requests in a snapshot. Their number is bounded, and each namespace has a share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::refusal;
use sesame_proto::schema::RateLimit;

use crate::api::NamespacedName;
use crate::resolve::context::Problems;
use crate::resolve::routes::Routes;
use crate::resolve::routes::attachments::AttachedListener;
use crate::resolve::tables::share;
use crate::world::{Kind, ObjectKey};

/// Returns the limits of the listeners and all their routes. It does not matter whether others take
/// their requests, so that a change of those does not change the limits. Routes whose limit has no
/// room answer 500.
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
    if by_name.len() > RateLimit::MAX {
        keep_shares(&mut by_name, problems);
    }
    by_name.into_values().map(Arc::unwrap_or_clone).collect()
}

/// Removes the limits of namespaces beyond their shares.
fn keep_shares(by_name: &mut BTreeMap<String, Arc<RateLimit>>, problems: &mut Problems) {
    let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
    for name in by_name.keys() {
        *wanted.entry(namespace(name)).or_default() += 1;
    }
    let most = u64::try_from(RateLimit::MAX).unwrap_or(u64::MAX);
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
            "its limits of requests have no room, because its namespace may have {each} of the {most} of the \
             Gateway; requests that need one are answered with {}",
            refusal::HTTP
        );
        problems.add(object, message);
    }
}

/// Returns the namespace in the name of a limit: `Kind/namespace/name/…`.
fn namespace(name: &str) -> &str {
    name.split('/').nth(1).unwrap_or_default()
}

fn object(name: &str) -> Option<ObjectKey> {
    let mut parts = name.split('/');
    let kind = Kind::parse(parts.next()?)?;
    let name = NamespacedName::new(parts.next()?, parts.next()?);
    Some(kind.named(name))
}
