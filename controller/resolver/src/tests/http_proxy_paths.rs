//! Path rewrites and redirects in HTTPProxies.

use sesame_proto::schema::path_modifier;

use super::http_proxies::{NONE, ask, errors, proxy, root, with};
use super::http_proxy_routes::{forward, forwarding};
use crate::Resolution;

#[test]
fn entry_for_merged_prefix_replaces_it() {
    let rewritten = |resolution: &Resolution| {
        let forward = forward(resolution);
        let path = forward.rewrite.as_ref().and_then(|it| it.path.clone());
        match path.and_then(|it| it.kind) {
            Some(path_modifier::Kind::Prefix(to)) => to,
            other => format!("{other:?}"),
        }
    };
    let spec = |condition: &str, entries: &str| {
        let policy = format!("pathRewritePolicy: {{replacePrefix: [{entries}]}}");
        forwarding(&format!("conditions: [{{{condition}}}], {policy}"))
    };
    let own = "{prefix: /a, replacement: /own}";
    let any = "{replacement: /any}";
    for (entries, expected) in [
        (any, "/any"),
        (&format!("{any}, {own}"), "/own"),
        ("{prefix: /x, replacement: /y}", "None"),
    ] {
        let resolution = with(&[root("r", &spec("prefix: /a", entries))]);
        assert_eq!(rewritten(&resolution), expected, "{entries}");
        assert_eq!(errors(&resolution, "r"), NONE, "{entries}");
    }
    for (condition, entries, error) in [
        (
            "prefix: /a",
            format!("{any}, {any}"),
            "AmbiguousReplacement",
        ),
        (
            "prefix: /a",
            format!("{own}, {own}"),
            "DuplicateReplacement",
        ),
        (
            "prefix: /a",
            "{replacement: '/b c'}".to_owned(),
            "ReplacementNotValid",
        ),
        ("exact: /a", any.to_owned(), "MustHavePrefix"),
        ("regex: '/a.*'", any.to_owned(), "MustHavePrefix"),
    ] {
        let resolution = with(&[root("r", &spec(condition, &entries))]);
        assert_eq!(ask(&resolution, "/a"), "500", "{condition} {entries}");
        let error = format!("PrefixReplaceError/{error}");
        assert_eq!(errors(&resolution, "r"), [error], "{condition} {entries}");
    }
    // Each include of one child has its own prefix.
    let parent = "includes: [{name: r, conditions: [{prefix: /one}]}, {name: r, conditions: [{prefix: /two}]}]";
    let child = forwarding(
        "pathRewritePolicy: {replacePrefix: [{prefix: /one, replacement: /1}, {prefix: /two, replacement: /2}]}",
    );
    let resolution = with(&[root("top", parent), proxy("r", &child)]);
    let tables = &resolution.gateways[0].snapshot.route_tables;
    let routes = tables[0].virtual_hosts.iter().flat_map(|host| &host.routes);
    let mut found: Vec<String> = routes
        .map(|route| format!("{:?}", (&route.path, &route.action)))
        .collect();
    found.sort_unstable();
    for (text, (from, to)) in found.iter().zip([("/one", "/1"), ("/two", "/2")]) {
        let both = text.contains(&format!("{from:?}")) && text.contains(&format!("{to:?}"));
        assert!(both, "{from} {to}: {text}");
    }
    assert_eq!(found.len(), 2);
}

#[test]
fn redirect_paths_are_whole_or_prefixes() {
    for (condition, policy, is_valid) in [
        ("prefix: /a", "prefix: /b", true),
        ("exact: /a", "path: /b", true),
        ("prefix: /a", "path: /b, prefix: /c", false),
        ("exact: /a", "prefix: /b", false),
        ("prefix: /a", "path: '/b c'", false),
    ] {
        let spec = format!(
            "routes: [{{conditions: [{{{condition}}}], requestRedirectPolicy: {{{policy}}}}}]"
        );
        let resolution = with(&[root("r", &spec)]);
        let expected = if is_valid { "302 :0" } else { "500" };
        assert_eq!(ask(&resolution, "/a"), expected, "{condition} {policy}");
        let invalid = errors(&resolution, "r") == ["RouteError/RequestRedirectPolicy"];
        assert_eq!(invalid, !is_valid, "{condition} {policy}");
    }
}
