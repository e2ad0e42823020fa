//! Collects rate limits and shared filters, up to a fair share per namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::keys::KeyPair;
use sesame_proto::refusal;
use sesame_proto::schema::shared_filter::Kind as SharedKind;
use sesame_proto::schema::{OidcLogin, RateLimit, SharedFilter};

use crate::context::Problems;
use crate::routes::Routes;
use crate::routes::attachments::AttachedListener;
use crate::tables::share;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{Kind, ObjectKey};

/// Includes unreachable routes, so the result does not depend on other routes. Routes with limits
/// beyond the share respond with 500.
pub(super) fn find<'a>(
    listeners: impl Iterator<Item = &'a AttachedListener<'a, 'a>>,
    routes: &Routes<'_>,
    problems: &mut Problems,
) -> Vec<RateLimit> {
    let mut by_name: BTreeMap<String, Arc<RateLimit>> = BTreeMap::new();
    // Limits of the listeners themselves, without which no request could be answered.
    let mut own: BTreeSet<String> = BTreeSet::new();
    let mut add = |limit: Arc<RateLimit>| {
        by_name.entry(limit.name.clone()).or_insert(limit);
    };
    for attached in listeners {
        let traffic = &attached.listener.traffic;
        traffic.rate_limits.iter().cloned().for_each(&mut add);
        own.extend(traffic.rate_limits.iter().map(|it| it.name.clone()));
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
    all.divide(&mut by_name, &own, |_| 1, str::to_owned, problems);
    let keyed = Allowance {
        what: "request limits with keys",
        most: u64::try_from(RateLimit::MAX_KEYED).unwrap_or(u64::MAX),
        unit: "",
    };
    let remembers = |limit: &Arc<RateLimit>| u64::from(limit.remembers());
    keyed.divide(&mut by_name, &own, remembers, str::to_owned, problems);
    by_name.into_values().map(Arc::unwrap_or_clone).collect()
}

/// Maximum total size of the credentials per Gateway, in bytes: a quarter of the maximum for key
/// pairs.
const MAX_CREDENTIAL_BYTES: u64 = 8 * 1024 * 1024;

/// Maximum total size of the descriptor sets per Gateway, in bytes.
const MAX_DESCRIPTOR_BYTES: u64 = 2 * 1024 * 1024;

/// Shared filters, and their credentials.
#[derive(Default)]
pub(super) struct SharedFilters {
    pub(super) filters: Vec<SharedFilter>,
    /// Passwords, API keys, injected credentials and the secrets of logins, by name.
    pub(super) credentials: BTreeMap<String, Arc<KeyPair>>,
    /// Policies with logins beyond the limit. Requests that need them get an error.
    pub(super) unserved_logins: Vec<NamespacedName>,
}

/// Includes unreachable routes, as in [`find`].
pub(super) fn shared_filters<'a>(
    listeners: impl Iterator<Item = &'a AttachedListener<'a, 'a>>,
    routes: &Routes<'_>,
    problems: &mut Problems,
) -> SharedFilters {
    let mut by_name: BTreeMap<String, SharedFilter> = BTreeMap::new();
    let mut credentials: BTreeMap<String, Arc<KeyPair>> = BTreeMap::new();
    let mut logins: BTreeMap<String, u64> = BTreeMap::new();
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
            logins.extend(settings.login_secrets().map(|pair| (pair.name.clone(), 1)));
            for pair in settings.key_pairs() {
                if !credentials.contains_key(&pair.name) {
                    credentials.insert(pair.name.clone(), Arc::clone(pair));
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
    all.divide(&mut by_name, &BTreeSet::new(), |_| 1, charged, problems);
    let sets = Allowance {
        what: "descriptor sets",
        most: MAX_DESCRIPTOR_BYTES,
        unit: " bytes",
    };
    let none = BTreeSet::new();
    sets.divide(&mut by_name, &none, descriptor_bytes, charged, problems);
    let bytes = Allowance {
        what: "credentials",
        most: MAX_CREDENTIAL_BYTES,
        unit: " bytes",
    };
    bytes.divide(
        &mut credentials,
        &BTreeSet::new(),
        size,
        str::to_owned,
        problems,
    );
    let unserved_logins = divide_logins(&mut logins, problems);
    by_name.retain(|_, filter| {
        let mut names = keys_of(filter).into_iter();
        names.all(|name| credentials.contains_key(name))
    });
    let needed: BTreeSet<&str> = by_name.values().flat_map(keys_of).collect();
    credentials.retain(|name, _| needed.contains(name.as_str()) || logins.contains_key(name));
    SharedFilters {
        filters: by_name.into_values().collect(),
        credentials,
        unserved_logins,
    }
}

/// Returns the policies with logins beyond the limit.
fn divide_logins(
    logins: &mut BTreeMap<String, u64>,
    problems: &mut Problems,
) -> Vec<NamespacedName> {
    let wanted = logins.clone();
    let most = Allowance {
        what: "logins",
        most: u64::try_from(OidcLogin::MAX_PER_GATEWAY).unwrap_or(u64::MAX),
        unit: "",
    };
    most.divide(logins, &BTreeSet::new(), |it| *it, str::to_owned, problems);
    let unserved = wanted.into_keys().filter(|it| !logins.contains_key(it));
    unserved.filter_map(|it| Some(object(&it)?.name)).collect()
}

fn size(credentials: &Arc<KeyPair>) -> u64 {
    u64::try_from(credentials.private_key.len()).unwrap_or(u64::MAX)
}

fn descriptor_bytes(filter: &SharedFilter) -> u64 {
    match &filter.kind {
        Some(SharedKind::GrpcJson(it)) => {
            u64::try_from(it.descriptor_set.len()).unwrap_or(u64::MAX)
        }
        _ => 0,
    }
}

fn keys_of(filter: &SharedFilter) -> Vec<&str> {
    match &filter.kind {
        Some(SharedKind::Credentials(set)) => set.checks.iter().map(|it| &*it.name).collect(),
        Some(SharedKind::Injected(_)) => vec![&filter.name],
        _ => Vec::new(),
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
    /// Removes and reports entries beyond a namespace's share of what `own` leaves. `size` returns
    /// how much of the allowance an entry uses, and `charged` returns the name of the object that
    /// needs the entry. If the entries in `own` exceed the allowance, they are not preferred.
    fn divide<T>(
        &self,
        by_name: &mut BTreeMap<String, T>,
        own: &BTreeSet<String>,
        size: impl Fn(&T) -> u64,
        charged: impl Fn(&str) -> String,
        problems: &mut Problems,
    ) {
        let Self { what, most, unit } = self;
        let total = by_name.values().map(&size).fold(0, u64::saturating_add);
        if total <= *most {
            return;
        }
        let preferred = by_name.iter().filter(|(name, _)| own.contains(*name));
        let reserved = preferred.map(|(_, entry)| size(entry));
        let reserved = reserved.fold(0, u64::saturating_add);
        let is_own = |name: &str| reserved <= *most && own.contains(name);
        let left = most.checked_sub(reserved).unwrap_or(*most);
        let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
        for (name, entry) in by_name.iter().filter(|(name, _)| !is_own(name)) {
            let sum = wanted.entry(namespace(&charged(name)).to_owned());
            let sum = sum.or_default();
            *sum = sum.saturating_add(size(entry));
        }
        // With more namespaces than entries, the first ones get one entry each. A share of 0 would
        // take all entries from all namespaces.
        let each = share(wanted.into_values().collect(), left).max(1);
        let mut used = 0_u64;
        let mut kept: BTreeMap<String, u64> = BTreeMap::new();
        let mut without: BTreeSet<ObjectKey> = BTreeSet::new();
        by_name.retain(|name, entry| {
            if is_own(name) {
                return true;
            }
            let charged = charged(name);
            let sum = kept.entry(namespace(&charged).to_owned()).or_default();
            let with = sum.saturating_add(size(entry));
            let all = used.saturating_add(size(entry));
            let has_room = with <= each && all <= left;
            if has_room {
                *sum = with;
                used = all;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_namespaces_than_entries_leave_entries_to_the_first() {
        let name = |n: u64| format!("TrafficPolicy/n{n:03}/p/all");
        for (most, count, kept) in [(4, 4, 4), (4, 5, 4), (4, 300, 4)] {
            let mut by_name: BTreeMap<String, u64> = (0..count).map(|n| (name(n), 1)).collect();
            let mut problems = Problems::default();
            let all = Allowance {
                what: "request limits",
                most,
                unit: "",
            };
            all.divide(
                &mut by_name,
                &BTreeSet::new(),
                |size| *size,
                str::to_owned,
                &mut problems,
            );
            let expected: Vec<String> = (0..kept).map(name).collect();
            assert_eq!(by_name.into_keys().collect::<Vec<_>>(), expected);
            let dropped = usize::try_from(count - kept).expect("a small number");
            assert_eq!(problems.into_sorted().len(), dropped);
        }
    }

    #[test]
    fn own_entries_of_gateway_are_kept_first() {
        let names = [
            "HTTPProxy/a/p/0",
            "HTTPProxy/b/p/0",
            "TrafficPolicy/z/own/all",
        ];
        let mut by_name: BTreeMap<String, u64> = names.map(|name| (name.to_owned(), 1)).into();
        let all = Allowance {
            what: "request limits",
            most: 2,
            unit: "",
        };
        let own = BTreeSet::from([names[2].to_owned()]);
        all.divide(
            &mut by_name,
            &own,
            |size| *size,
            str::to_owned,
            &mut Problems::default(),
        );
        assert_eq!(
            by_name.into_keys().collect::<Vec<_>>(),
            [names[0], names[2]]
        );
    }
}
