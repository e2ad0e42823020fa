//! Reads the routes with separate request metrics. Their number is limited, because each route adds
//! about 25 series.

use crate::syntax::{limits, names};
use sesame_kinds::api::{MeasuredKind, MeasuredRoute};

/// Maximum number of routes, as in the schema.
const MAX_ROUTES: usize = 32;

/// Returns sorted, unique route names as in the snapshot. The error names the field.
pub(super) fn read(routes: &[MeasuredRoute]) -> Result<Vec<String>, String> {
    limits::entries("routes", routes.len(), 0..=MAX_ROUTES)?;
    let mut found = Vec::with_capacity(routes.len());
    for (i, route) in routes.iter().enumerate() {
        let MeasuredRoute {
            kind,
            namespace,
            name,
        } = route;
        if let MeasuredKind::Other(kind) = kind {
            return Err(format!(
                "routes[{i}].kind {kind:?} is not one of {}",
                MeasuredKind::WORDS.join(", ")
            ));
        }
        names::check_object(namespace, name).map_err(|why| format!("routes[{i}]: {why}"))?;
        found.push(format!("{}/{namespace}/{name}", kind.as_str()));
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(kind: &str, name: &str) -> MeasuredRoute {
        MeasuredRoute {
            kind: kind.into(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn routes_are_named_once_as_in_snapshot() {
        let mut routes = ["b", "a", "b"]
            .map(|name| route("HTTPRoute", name))
            .to_vec();
        routes.extend([route("Ingress", "a"), route("HTTPProxy", "a")]);
        let found = read(&routes).unwrap();
        let expected = [
            "HTTPProxy/shop/a",
            "HTTPRoute/shop/a",
            "HTTPRoute/shop/b",
            "Ingress/shop/a",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn faults_name_the_field_and_the_value() {
        let many = vec![route("GRPCRoute", "a"); MAX_ROUTES + 1];
        for (routes, words) in [
            (
                vec![route("TCPRoute", "a")],
                "routes[0].kind \"TCPRoute\" is not one of HTTPRoute, GRPCRoute, HTTPProxy, Ingress",
            ),
            (vec![route("HTTPRoute", "../a")], "routes[0]: "),
            (many, "routes"),
        ] {
            let why = read(&routes).unwrap_err();
            assert!(why.starts_with(words), "{why}");
        }
    }
}
