//! Lists the HTTPProxies in a root's include tree in order of precedence.

use std::collections::BTreeMap;

use super::conditions::Inherited;
use super::details::Details;
use super::roots::{Proxies, Root};
use super::rules;
use super::withheld::UNLESS_TAKEN;
use crate::ingresses::class_name;
use crate::routes::matches::RouteMatch;
use crate::syntax::limits::{MAX_PROXY_DEPTH, MAX_PROXY_ROUTES};
use crate::syntax::regexes::Regexes;
use sesame_kinds::api::{HttpProxy, NamespacedName, ProxyCondition, ProxyInclude, ProxyRoute};
use sesame_kinds::world::World;

/// One occurrence of an HTTPProxy in a root's include tree.
pub(super) struct Place<'w> {
    pub(super) name: NamespacedName,
    pub(super) proxy: &'w HttpProxy,
    /// Empty if a limit is exceeded.
    pub(super) routes: &'w [ProxyRoute],
    pub(super) inherited: Inherited,
    pub(super) depth: usize,
    pub(super) number: usize,
    pub(super) dead_ends: DeadEnds,
}

/// Matches of invalid includes, whose requests get an error.
#[derive(Default)]
pub(super) struct DeadEnds {
    /// No valid route may take these requests, because the included routes may be
    /// security-relevant.
    pub(super) protecting: Vec<RouteMatch>,
    pub(super) others: Vec<RouteMatch>,
}

pub(super) struct IncludeTree<'a, 'w> {
    pub(super) world: &'w World,
    pub(super) proxies: &'a Proxies<'w>,
    pub(super) regexes: &'a mut Regexes,
    pub(super) details: &'a mut Details,
    /// Number of places of each HTTPProxy that an include names; 0 if all its includes are invalid.
    pub(super) placed: BTreeMap<NamespacedName, usize>,
    /// Counted per root namespace, so that one namespace cannot use up another's limit.
    pub(super) sizes: BTreeMap<(&'w str, NamespacedName), usize>,
}

impl<'w> IncludeTree<'_, 'w> {
    /// Returns the places in order of precedence: an HTTPProxy precedes its includes, and a later
    /// include precedes earlier ones.
    pub(super) fn places(&mut self, root: &Root<'w>) -> Vec<Place<'w>> {
        let mut places = Vec::new();
        let mut path = vec![root.name.clone()];
        self.place(
            root,
            root.proxy,
            Inherited::default(),
            &mut path,
            &mut places,
        );
        places
    }

    fn place(
        &mut self,
        root: &Root<'w>,
        proxy: &'w HttpProxy,
        inherited: Inherited,
        path: &mut Vec<NamespacedName>,
        places: &mut Vec<Place<'w>>,
    ) {
        let name = proxy.metadata.key();
        let number = self.placed.entry(name.clone()).or_default();
        let here = *number;
        *number = number.saturating_add(1);
        let spec = &proxy.spec;
        let own = spec.routes.len().saturating_add(spec.includes.len()).max(1);
        let size_key = (root.proxy.metadata.namespace.as_str(), name.clone());
        let size = self.sizes.entry(size_key).or_default();
        *size = size.saturating_add(own);
        if *size > MAX_PROXY_ROUTES {
            places.push(self.beyond_limit(root, proxy, inherited, path.len(), here));
            return;
        }
        let at = places.len();
        places.push(Place {
            name,
            proxy,
            routes: &proxy.spec.routes,
            inherited: inherited.clone(),
            depth: path.len(),
            number: here,
            dead_ends: DeadEnds::default(),
        });
        let mut dead_ends = DeadEnds::default();
        let mut seen: Vec<Inherited> = Vec::new();
        let mut below: Vec<(&'w HttpProxy, Inherited)> = Vec::new();
        for include in &proxy.spec.includes {
            match self.include((root, proxy), include, &inherited, path, &mut seen) {
                Ok(found) => below.extend(found),
                Err(DeadEnds { protecting, others }) => {
                    dead_ends.protecting.extend(protecting);
                    dead_ends.others.extend(others);
                }
            }
        }
        if let Some(place) = places.get_mut(at) {
            place.dead_ends = dead_ends;
        }
        for (child, inherited) in below.into_iter().rev() {
            path.push(child.metadata.key());
            self.place(root, child, inherited, path, places);
            path.pop();
        }
    }

    /// Reports the limit. The requests get 502.
    fn beyond_limit(
        &mut self,
        root: &Root<'w>,
        proxy: &'w HttpProxy,
        inherited: Inherited,
        depth: usize,
        number: usize,
    ) -> Place<'w> {
        let name = proxy.metadata.key();
        let why = format!(
            "includes of HTTPProxy {name} from namespace {:?} have more than {MAX_PROXY_ROUTES} \
             routes and includes together; include it less often; requests of further includes get \
             502",
            root.proxy.metadata.namespace
        );
        let code = ("SpecError", "TooManyRoutes");
        self.details.error(&root.name, code, why);
        Place {
            name,
            proxy,
            routes: &[],
            dead_ends: DeadEnds {
                others: vec![inherited.whole()],
                ..DeadEnds::default()
            },
            inherited,
            depth,
            number,
        }
    }

    /// Returns `None` if an earlier include with equal conditions receives the requests. For an
    /// invalid include, the error contains matches for its requests.
    fn include(
        &mut self,
        (root, proxy): (&Root<'w>, &'w HttpProxy),
        include: &'w ProxyInclude,
        inherited: &Inherited,
        path: &[NamespacedName],
        seen: &mut Vec<Inherited>,
    ) -> Result<Option<(&'w HttpProxy, Inherited)>, DeadEnds> {
        let ProxyInclude {
            name,
            namespace,
            conditions,
        } = include;
        let own = proxy.metadata.key();
        let namespace = if namespace.is_empty() {
            &proxy.metadata.namespace
        } else {
            namespace
        };
        let child = NamespacedName::new(namespace, name);
        // A child is not orphaned if its include is invalid.
        self.placed.entry(child.clone()).or_default();
        let below = match inherited.include(conditions, self.regexes) {
            Ok(below) => below,
            Err((reason, why)) => {
                let type_ = if reason.starts_with("Path") {
                    "IncludeError"
                } else {
                    "RouteError"
                };
                let protects = self.may_protect(root, &child);
                let unless = if protects { "" } else { UNLESS_TAKEN };
                let message = format!("include {child}: {why}; its requests get 502{unless}");
                self.details.error(&own, (type_, reason), message);
                let why = "the conditions of an include of this HTTPProxy are invalid; the \
                           include's requests get 502";
                self.details.warn(&child, (type_, reason), why);
                let widened = inherited.widened_include(conditions, self.regexes);
                let (protecting, others) = widened.split(protects);
                return Err(DeadEnds { protecting, others });
            }
        };
        // As in Contour, several includes may have no condition except the prefix `/`.
        let is_bound = !conditions.iter().all(matches_all);
        if is_bound && seen.contains(&below) {
            let why = format!("include {child} has the same conditions as an earlier include");
            self.details.error(
                &own,
                ("IncludeError", "DuplicateMatchConditions"),
                format!("{why}; the earlier one gets the requests"),
            );
            return Ok(None);
        }
        match self.child(&child, path) {
            Ok(found) => {
                seen.push(below.clone());
                Ok(Some((found, below)))
            }
            Err((reason, why)) => {
                let why = format!("include {why}; its requests get 502{UNLESS_TAKEN}");
                self.details.error(&own, ("IncludeError", reason), why);
                Err(DeadEnds {
                    others: vec![below.whole()],
                    ..DeadEnds::default()
                })
            }
        }
    }

    /// Does not look at further includes, which would take quadratic time.
    fn may_protect(&self, root: &Root<'_>, child: &NamespacedName) -> bool {
        let found = self.proxies.get(child).map(|it| &it.proxy.spec);
        found.is_some_and(|child| {
            let mut routes = child.routes.iter();
            !child.includes.is_empty() || routes.any(|it| rules::may_protect(it, root.virtualhost))
        })
    }

    /// Errors contain the reason, and a message that follows `include`.
    fn child(
        &self,
        child: &NamespacedName,
        path: &[NamespacedName],
    ) -> Result<&'w HttpProxy, (&'static str, String)> {
        if let Some(fault) = path_fault(path, child) {
            return Err(fault);
        }
        let Some(found) = self.proxies.get(child) else {
            let other = self.world.http_proxies.get(&child.namespace, &child.name);
            let class = other.and_then(|it| class_name(it));
            let is_neighbor = path
                .last()
                .is_some_and(|it| it.namespace == child.namespace);
            let why = match class.filter(|it| !it.is_empty()) {
                // Do not disclose objects in other namespaces.
                _ if !is_neighbor => format!("{child} not found, or its class is not served"),
                Some(class) => format!("{child} is of class {class:?}, which is not served"),
                None if other.is_some() => format!("{child} has no class"),
                None => format!("{child} not found"),
            };
            return Err(("IncludeNotFound", why));
        };
        if found.proxy.spec.virtualhost.is_some() {
            let why = format!("{child} is a root HTTPProxy, which cannot be included");
            return Err(("RootIncludesRoot", why));
        }
        Ok(found.proxy)
    }
}

/// True for a valid condition that every request meets.
fn matches_all(condition: &ProxyCondition) -> bool {
    let ProxyCondition {
        prefix,
        exact,
        regex,
        header,
        query_parameter,
    } = condition;
    prefix.trim_start_matches('/').is_empty()
        && exact.is_empty()
        && regex.is_empty()
        && header.is_none()
        && query_parameter.is_none()
}

/// Returns the reason and message if including `child` creates a cycle or nests includes too
/// deeply.
pub(super) fn path_fault(
    path: &[NamespacedName],
    child: &NamespacedName,
) -> Option<(&'static str, String)> {
    if path.contains(child) {
        let names: Vec<String> = path
            .iter()
            .chain([child])
            .map(ToString::to_string)
            .collect();
        let why = format!("creates an include cycle: {}", names.join(" -> "));
        return Some(("IncludeCreatesCycle", why));
    }
    (path.len() > MAX_PROXY_DEPTH).then(|| {
        let why = format!("is nested more than {MAX_PROXY_DEPTH} levels deep");
        ("IncludeTooDeep", why)
    })
}
