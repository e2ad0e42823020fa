//! Routes of HTTPProxies: what they do with requests and answers.

use sesame_proto::schema::Route;
use sesame_proto::schema::route::Action;

use super::http_proxies::{NONE, ask, errors, root, with};
use crate::resolve::Resolution;

/// Returns the route at an index of the HTTPProxy `r`.
fn route(resolution: &Resolution, index: usize) -> &Route {
    let tables = &resolution.gateways[0].snapshot.route_tables;
    let hosts = tables.iter().flat_map(|table| &table.virtual_hosts);
    let name = format!("HTTPProxy/web/r/rules/{index}/matches/0");
    let mut routes = hosts.flat_map(|host| &host.routes);
    routes.find(|route| route.name == name).expect("a route")
}

#[test]
fn direct_response_has_body_up_to_limit() {
    let spec = |body: &str| {
        format!(
            "routes: [{{directResponsePolicy: {{statusCode: 404, body: {body:?}}}}}, {{conditions: \
             [{{prefix: /none}}], directResponsePolicy: {{statusCode: 200}}}}]"
        )
    };
    let resolution = with(&[root("r", &spec("100% gone"))]);
    let bodies = [0, 1].map(|index| match &route(&resolution, index).action {
        Some(Action::DirectResponse(it)) => (it.status, it.body.as_str()),
        other => panic!("{other:?}"),
    });
    assert_eq!(bodies, [(404, "100% gone"), (200, "")]);
    assert_eq!(errors(&resolution, "r"), NONE);
    let resolution = with(&[root("r", &spec(&"x".repeat(4097)))]);
    assert_eq!(ask(&resolution, "/"), "500");
    assert_eq!(
        errors(&resolution, "r"),
        ["RouteError/DirectResponseNotValid"]
    );
}
