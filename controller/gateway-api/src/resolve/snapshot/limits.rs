//! Collects rate limits and shared filters, up to a fair share per namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::refusal;
use sesame_proto::schema::shared_filter::Kind as SharedKind;
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
    let what = "request limits";
    keep_shares(&mut by_name, RateLimit::MAX, what, str::to_owned, problems);
    by_name.into_values().map(Arc::unwrap_or_clone).collect()
}

/// Of a Gateway, a quarter of what key pairs may use.
const MAX_CREDENTIAL_BYTES: u64 = 8 * 1024 * 1024;

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
    // Members of the listeners' own filters.
    let mut wide: BTreeSet<String> = BTreeSet::new();
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
        for filter in listener_filters.shared(|_| false) {
            wide.extend(filter.name.split(',').map(ToOwned::to_owned));
        }
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
    // A rule's policy, not the Gateway's, makes a set necessary that contains both.
    let charged = |name: &str| {
        let mut members = name.split(',');
        let member = members
            .find(|it| !wide.contains(*it))
            .map(ToOwned::to_owned);
        member.unwrap_or_else(|| name.to_owned())
    };
    let what = "response, bandwidth and access filters";
    keep_shares(&mut by_name, SharedFilter::MAX, what, charged, problems);
    keep_credentials(&mut credentials, problems);
    by_name.retain(|_, filter| match &filter.kind {
        Some(SharedKind::Credentials(set)) => {
            let mut checks = set.checks.iter();
            checks.all(|check| credentials.contains_key(&check.name))
        }
        _ => true,
    });
    let sets = by_name.values().filter_map(|filter| match &filter.kind {
        Some(SharedKind::Credentials(set)) => Some(set),
        _ => None,
    });
    let needed: BTreeSet<&str> = sets
        .flat_map(|set| set.checks.iter().map(|check| check.name.as_str()))
        .collect();
    credentials.retain(|name, _| needed.contains(name.as_str()));
    SharedFilters {
        filters: by_name.into_values().collect(),
        credentials,
    }
}

/// Removes and reports credentials beyond a namespace's share of the Gateway's key pairs.
fn keep_credentials(credentials: &mut BTreeMap<String, Credentials>, problems: &mut Problems) {
    let size = |it: &Credentials| u64::try_from(it.pair.private_key.len()).unwrap_or(u64::MAX);
    let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, one) in credentials.iter() {
        let sum = wanted.entry(namespace(name)).or_default();
        *sum = sum.saturating_add(size(one));
    }
    let each = share(wanted.into_values().collect(), MAX_CREDENTIAL_BYTES);
    let mut kept: BTreeMap<String, u64> = BTreeMap::new();
    credentials.retain(|name, one| {
        let sum = kept.entry(namespace(name).to_owned()).or_default();
        let with = sum.saturating_add(size(one));
        let has_room = with <= each;
        if has_room {
            *sum = with;
        } else if let Some(object) = object(name) {
            let message = format!(
                "its credentials are dropped, because its namespace may use only {each} of the \
                Gateway's {MAX_CREDENTIAL_BYTES} bytes; requests that need them get {}",
                refusal::HTTP
            );
            problems.add(object, message);
        }
        has_room
    });
}

/// Removes and reports entries beyond a namespace's share if there are more than `most`. `charged`
/// returns the name of the object that needs an entry.
fn keep_shares<T>(
    by_name: &mut BTreeMap<String, T>,
    most: usize,
    what: &str,
    charged: impl Fn(&str) -> String,
    problems: &mut Problems,
) {
    if by_name.len() <= most {
        return;
    }
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    for name in by_name.keys() {
        let owner = namespace(&charged(name)).to_owned();
        *wanted.entry(owner).or_default() += 1;
    }
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    let each = share(wanted.into_values().collect(), most);
    let mut kept: BTreeMap<String, u64> = BTreeMap::new();
    let mut without: BTreeSet<ObjectKey> = BTreeSet::new();
    by_name.retain(|name, _| {
        let charged = charged(name);
        let count = kept.entry(namespace(&charged).to_owned());
        let count = count.or_default();
        *count += 1;
        let has_room = *count <= each;
        without.extend(object(&charged).filter(|_| !has_room));
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
