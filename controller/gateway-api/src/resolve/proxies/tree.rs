//! Lists the HTTPProxies in a root's include tree in order of precedence.

use std::collections::BTreeMap;

use super::conditions::Inherited;
use super::details::Details;
use super::roots::{Proxies, Root};
use crate::api::{HttpProxy, NamespacedName, ProxyInclude, ProxyRoute};
use crate::resolve::routes::matches::RouteMatch;
use crate::resolve::syntax::limits::{MAX_PROXY_DEPTH, MAX_PROXY_ROUTES};
use crate::resolve::syntax::regexes::Regexes;

/// One occurrence of an HTTPProxy in a root's include tree.
pub(super) struct Place<'w> {
    pub(super) name: NamespacedName,
    pub(super) proxy: &'w HttpProxy,
    /// Empty if a limit is exceeded.
    pub(super) routes: &'w [ProxyRoute],
    pub(super) inherited: Inherited,
    pub(super) depth: usize,
    pub(super) number: usize,
    /// Matches of invalid includes, whose requests get an error.
    pub(super) dead_ends: Vec<RouteMatch>,
}

pub(super) struct IncludeTree<'a, 'w> {
    pub(super) proxies: &'a Proxies<'w>,
    pub(super) regexes: &'a mut Regexes,
    pub(super) details: &'a mut Details,
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
            let why = format!(
                "includes of HTTPProxy {name} from namespace {:?} have more than \
                 {MAX_PROXY_ROUTES} routes and includes together; include it less often; requests \
                 of further includes get 502",
                root.proxy.metadata.namespace
            );
            let code = ("SpecError", "TooManyRoutes");
            self.details.error(&root.name, code, why);
            places.push(Place {
                name,
                proxy,
                routes: &[],
                dead_ends: vec![inherited.whole()],
                inherited,
                depth: path.len(),
                number: here,
            });
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
            dead_ends: Vec::new(),
        });
        let mut dead_ends = Vec::new();
        let mut seen: Vec<Inherited> = Vec::new();
        let mut below: Vec<(&'w HttpProxy, Inherited)> = Vec::new();
        for include in &proxy.spec.includes {
            match self.include(proxy, include, &inherited, path, &mut seen) {
                Ok(found) => below.extend(found),
                Err(route_match) => dead_ends.push(*route_match),
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

    /// Returns `None` if an earlier include with equal conditions receives the requests. For an
    /// invalid include, the error is the match for its requests.
    fn include(
        &mut self,
        proxy: &'w HttpProxy,
        include: &'w ProxyInclude,
        inherited: &Inherited,
        path: &[NamespacedName],
        seen: &mut Vec<Inherited>,
    ) -> Result<Option<(&'w HttpProxy, Inherited)>, Box<RouteMatch>> {
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
        let below = match inherited.include(conditions, self.regexes) {
            Ok(below) => below,
            Err((reason, why)) => {
                let type_ = if reason.starts_with("Path") {
                    "IncludeError"
                } else {
                    "RouteError"
                };
                let message = format!("include {child}: {why}; its requests get 502");
                self.details.error(&own, (type_, reason), message);
                return Err(Box::new(inherited.widened(conditions)));
            }
        };
        let fault = |details: &mut Details, reason: &'static str, why: String| {
            let message = format!("{why}; its requests get 502");
            details.error(&own, ("IncludeError", reason), message);
            Err(Box::new(below.whole()))
        };
        if let Some((reason, why)) = path_fault(path, &child) {
            return fault(self.details, reason, format!("include {why}"));
        }
        let Some(found) = self.proxies.get(&child) else {
            let why = format!("include {child} not found, or of another class");
            return fault(self.details, "IncludeNotFound", why);
        };
        if found.proxy.spec.virtualhost.is_some() {
            let why = format!("include {child} is a root HTTPProxy, which cannot be included");
            return fault(self.details, "RootIncludesRoot", why);
        }
        if !conditions.is_empty() && seen.contains(&below) {
            let why = format!("include {child} has the same conditions as an earlier include");
            let code = ("IncludeError", "DuplicateMatchConditions");
            self.details.error(
                &own,
                code,
                format!("{why}; the earlier one gets the requests"),
            );
            return Ok(None);
        }
        seen.push(below.clone());
        Ok(Some((found.proxy, below)))
    }
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
