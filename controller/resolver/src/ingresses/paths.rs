//! Reads the paths and wildcard hosts of Ingress rules.

use sesame_proto::expressions::{self, fixed_path};
use sesame_proto::schema::{StringMatch, UrlRewrite, string_match};

use super::nginx::{Paths, is_expression};
use super::rules::RuleSettings;
use crate::routes::matches::{self, RouteMatch};
use crate::syntax::hostnames::Hostname;
use crate::syntax::regexes::Regexes;
use sesame_kinds::api::{HttpMatch, IngressPath, PathMatch, PathMatchType};

pub(super) type ReadPath = (RouteMatch, Option<UrlRewrite>);

/// Errors start with the field path relative to the entry in `paths`.
pub(super) fn read_path(
    path: &IngressPath,
    settings: &RuleSettings<'_, '_>,
    regexes: &mut Regexes,
) -> Result<ReadPath, String> {
    let IngressPath {
        path: value,
        path_type,
        backend: _,
    } = path;
    let nginx_paths = settings.paths().filter(|it| it.are_expressions);
    let rewrite = nginx_paths
        .map(|it| it.rewrite(path, regexes))
        .transpose()?;
    let rewrite = rewrite.flatten();
    let type_ = match path_type.as_str() {
        "Exact" => PathMatchType::Exact,
        "ImplementationSpecific" if value.is_empty() => return Ok((RouteMatch::all(), rewrite)),
        "Prefix" | "ImplementationSpecific" if nginx_paths.is_some() => {
            return Ok((Paths::read_match(path, regexes)?, rewrite));
        }
        "ImplementationSpecific" if is_expression(value) => {
            return Err(format!(
                "path {value:?} looks like a regular expression, which is not supported; use \
                 pathType Prefix or Exact"
            ));
        }
        "Prefix" | "ImplementationSpecific" => PathMatchType::PathPrefix,
        other => {
            return Err(format!(
                "pathType {other:?} is unknown; expected Exact, Prefix or ImplementationSpecific"
            ));
        }
    };
    Ok((read_as(type_, value, regexes)?, rewrite))
}

/// Errors start with the field path relative to the entry in `paths`.
pub(super) fn read_as(
    type_: PathMatchType,
    value: &str,
    regexes: &mut Regexes,
) -> Result<RouteMatch, String> {
    matches::read(&of_path(type_, value), regexes).map_err(|why| of_field(&why))
}

pub(super) fn of_field(why: &str) -> String {
    why.replacen("path.value", "path", 1)
}

fn of_path(type_: PathMatchType, value: &str) -> HttpMatch {
    HttpMatch {
        path: Some(PathMatch {
            type_: Some(type_),
            value: Some(value.into()),
        }),
        ..HttpMatch::default()
    }
}

/// Returns a match that covers at least the requests that an invalid path was meant to match.
pub(super) fn widened(
    path: &IngressPath,
    settings: &RuleSettings<'_, '_>,
    regexes: &mut Regexes,
) -> RouteMatch {
    let by_characters = settings.paths().is_some_and(|it| it.are_expressions);
    if by_characters {
        // A regular expression ignores case and may end within a path element, so no path prefix
        // covers it.
        return RouteMatch::all();
    }
    let fixed = if path.path_type == "ImplementationSpecific" {
        fixed_path(&path.path)
    } else {
        &path.path
    };
    let fixed = if fixed.is_empty() { "/" } else { fixed };
    matches::widened(&of_path(PathMatchType::PathPrefix, fixed), regexes)
}

/// Restricts a wildcard host to one label by matching the number of labels. The virtual host's
/// domain checks the other labels.
pub(crate) struct OneLabel(Option<(StringMatch, u64)>);

pub(crate) fn one_label(host: &Hostname) -> OneLabel {
    let wildcard = host.as_str().strip_prefix("*.");
    OneLabel(wildcard.map(|name| {
        // A port contains no dots, so it counts as part of the last label.
        let labels = name.split('.').count();
        let pattern = format!(r"[^.]+(\.[^.]+){{{labels}}}");
        let cost = expressions::instructions(&pattern).unwrap_or(u64::MAX);
        let matches = StringMatch {
            name: "host".to_owned(),
            kind: Some(string_match::Kind::Regex(pattern)),
        };
        (matches, cost)
    }))
}

impl OneLabel {
    pub(crate) fn applied_to(&self, mut route_match: RouteMatch) -> RouteMatch {
        if let Some((of_host, cost)) = &self.0 {
            route_match.headers.push(of_host.clone());
            route_match.instructions = route_match.instructions.saturating_add(*cost);
            route_match.one_label = true;
        }
        route_match
    }
}
