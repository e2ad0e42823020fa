//! Collects rate limits and shared filters, up to a fair share per namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::refusal;
use sesame_proto::schema::shared_filter::Kind as SharedKind;
use sesame_proto::schema::{CredentialCheck, RateLimit, SharedFilter};

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
    let all = Allowance {
        what: "request limits",
        most: u64::try_from(RateLimit::MAX).unwrap_or(u64::MAX),
        unit: "",
    };
    all.divide(&mut by_name, |_| 1, str::to_owned, problems);
    by_name.into_values().map(Arc::unwrap_or_clone).collect()
}

/// Maximum total size of the credentials per Gateway, in bytes: a quarter of the maximum for key
/// pairs.
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
    // Policies of the listeners themselves.
    let mut wide: BTreeSet<ObjectKey> = BTreeSet::new();
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
        wide.extend(listener_filters.owners().filter_map(|it| object(&it)));
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
    // Charge a set that combines a listener's and a rule's policies to the rule's, which requires
    // it.
    let charged = |name: &str| {
        let is_own = |it: &&str| object(it).is_none_or(|it| !wide.contains(&it));
        let own = name.split(',').find(is_own);
        own.unwrap_or(name).to_owned()
    };
    let all = Allowance {
        what: "response, bandwidth and access filters",
        most: u64::try_from(SharedFilter::MAX).unwrap_or(u64::MAX),
        unit: "",
    };
    all.divide(&mut by_name, |_| 1, charged, problems);
    let bytes = Allowance {
        what: "credentials",
        most: MAX_CREDENTIAL_BYTES,
        unit: " bytes",
    };
    bytes.divide(&mut credentials, size, str::to_owned, problems);
    by_name.retain(|_, filter| {
        let mut checks = checks_of(filter).iter();
        checks.all(|check| credentials.contains_key(&check.name))
    });
    let checks = by_name.values().flat_map(checks_of);
    let needed: BTreeSet<&str> = checks.map(|check| check.name.as_str()).collect();
    credentials.retain(|name, _| needed.contains(name.as_str()));
    SharedFilters {
        filters: by_name.into_values().collect(),
        credentials,
    }
}

fn size(credentials: &Credentials) -> u64 {
    u64::try_from(credentials.pair.private_key.len()).unwrap_or(u64::MAX)
}

fn checks_of(filter: &SharedFilter) -> &[CredentialCheck] {
    match &filter.kind {
        Some(SharedKind::Credentials(set)) => &set.checks,
        _ => &[],
    }
}

/// A Gateway's maximum, which its namespaces share.
struct Allowance {
    what: &'static str,
    most: u64,
    /// Appended to the maximum in messages.
    unit: &'static str,
}

impl Allowance {
    /// Removes and reports entries beyond a namespace's share. `size` returns how much of the
    /// allowance an entry uses, and `charged` returns the name of the object that needs the entry.
    fn divide<T>(
        &self,
        by_name: &mut BTreeMap<String, T>,
        size: impl Fn(&T) -> u64,
        charged: impl Fn(&str) -> String,
        problems: &mut Problems,
    ) {
        let Self { what, most, unit } = self;
        let total = by_name.values().map(&size).fold(0, u64::saturating_add);
        if total <= *most {
            return;
        }
        let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
        for (name, entry) in by_name.iter() {
            let sum = wanted.entry(namespace(&charged(name)).to_owned());
            let sum = sum.or_default();
            *sum = sum.saturating_add(size(entry));
        }
        let each = share(wanted.into_values().collect(), *most);
        let mut kept: BTreeMap<String, u64> = BTreeMap::new();
        let mut without: BTreeSet<ObjectKey> = BTreeSet::new();
        by_name.retain(|name, entry| {
            let charged = charged(name);
            let sum = kept.entry(namespace(&charged).to_owned()).or_default();
            let with = sum.saturating_add(size(entry));
            let has_room = with <= each;
            if has_room {
                *sum = with;
            } else {
                without.extend(object(&charged));
            }
            has_room
        });
        for object in without {
            let message = format!(
                "its {what} are dropped, because its namespace may use only {each} of the \
                Gateway's {most}{unit}; requests that need them get {}",
                refusal::HTTP
            );
            problems.add(object, message);
        }
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
