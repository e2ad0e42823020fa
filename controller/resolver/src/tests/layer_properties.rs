//! For arbitrary HTTPRoutes, HTTPProxies and Ingresses with the same host, different matches are
//! ordered by specificity across all layers, and equal matches go to the highest layer. The order in
//! which objects arrive does not matter.

use std::cmp::Reverse;

use proptest::prelude::*;

use super::http_proxies::root;
use super::ingresses::{CLASS, ingress, path, rule};
use super::router::{GET, Request, answer};
use super::{BASE, HTTP, gateway, objects, resolve, route, world_of};
use crate::{Options, Resolver};
use sesame_kinds::world::AnyObject;

/// The highest layer comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Route,
    Proxy,
    Ingress,
}

/// A match that sends requests to its own Service. All matches of HTTPProxies are in one object.
#[derive(Clone, Debug)]
struct Claim {
    layer: Layer,
    exact: bool,
    path: &'static str,
    header: bool,
    age: usize,
}

impl Claim {
    /// HTTPProxies match characters, other kinds match elements. For `/`, this is the same.
    fn is_textual(&self) -> bool {
        self.layer == Layer::Proxy && !self.exact && self.path != "/"
    }

    fn matches(&self, path: &str, header: bool) -> bool {
        let rest = path.strip_prefix(self.path);
        let is_path = match rest {
            Some(rest) if self.exact => rest.is_empty(),
            Some(_) if self.is_textual() || self.path == "/" => true,
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        is_path && (header || !self.header)
    }

    /// The least claim gets the request. In an HTTPProxy, the last of equal routes wins.
    fn order(&self, place: usize) -> impl Ord + use<> {
        let turn = match self.layer {
            Layer::Proxy => (0, usize::MAX - place),
            Layer::Route | Layer::Ingress => (self.age, place),
        };
        let length = Reverse(self.path.len());
        let specificity = (!self.exact, length, self.is_textual(), !self.header);
        (specificity, self.layer, turn)
    }

    fn object(&self, place: usize) -> String {
        let (service, name) = (format!("s{place}"), format!("o{place}"));
        let yaml = match self.layer {
            Layer::Route => {
                let kind = if self.exact { "Exact" } else { "PathPrefix" };
                let path = format!("path: {{type: {kind}, value: {}}}", self.path);
                let headers = ["", ", headers: [{name: x, value: '1'}]"];
                let headers = headers[usize::from(self.header)];
                let to = format!("backendRefs: [{{name: {service}, port: 80}}]");
                let rules = format!("rules: [{{matches: [{{{path}{headers}}}], {to}}}]");
                route(&name, &format!("hostnames: [h.test]\n{rules}"))
            }
            Layer::Ingress => {
                let kind = if self.exact { "Exact" } else { "Prefix" };
                ingress(&name, &rule("h.test", &[path(self.path, kind, &service)]))
            }
            Layer::Proxy => return String::new(),
        };
        let created = format!(
            "metadata: {{creationTimestamp: '202{}-01-01T00:00:00Z', ",
            self.age
        );
        yaml.replacen("metadata: {", &created, 1)
    }

    fn proxy_route(&self, place: usize) -> String {
        let kind = if self.exact { "exact" } else { "prefix" };
        let headers = ["", ", {header: {name: x, exact: '1'}}"];
        let headers = headers[usize::from(self.header)];
        let conditions = format!("conditions: [{{{kind}: {}}}{headers}]", self.path);
        format!("{{{conditions}, services: [{{name: s{place}, port: 80}}]}}")
    }
}

prop_compose! {
    fn claim()(
        layer in prop_oneof![Just(Layer::Route), Just(Layer::Proxy), Just(Layer::Ingress)],
        exact in any::<bool>(),
        path in prop_oneof![Just("/"), Just("/a"), Just("/ab"), Just("/a/b")],
        header in any::<bool>(),
        age in 0..3_usize,
    ) -> Claim {
        // Ingresses cannot match headers.
        Claim { layer, exact, path, header: header && layer != Layer::Ingress, age }
    }
}

fn objects_of(claims: &[Claim]) -> Vec<AnyObject> {
    let mut yaml = format!("{BASE}{}{CLASS}", gateway(HTTP));
    let mut proxy_routes = Vec::new();
    for (place, claim) in claims.iter().enumerate() {
        yaml +=
            "---\nkind: Service\nspec: {ports: [{port: 80}]}\nmetadata: {namespace: web, name: s";
        yaml += &place.to_string();
        yaml += "}\n";
        yaml += &claim.object(place);
        if claim.layer == Layer::Proxy {
            proxy_routes.push(claim.proxy_route(place));
        }
    }
    if !proxy_routes.is_empty() {
        yaml += &root("p", &format!("routes: [{}]", proxy_routes.join(", ")));
    }
    objects(&yaml)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equal_matches_go_to_highest_layer(
        (claims, objects, shuffled) in prop::collection::vec(claim(), 1..9).prop_flat_map(|claims| {
            let objects = objects_of(&claims);
            (Just(claims), Just(objects.clone()), Just(objects).prop_shuffle())
        }),
    ) {
        let options = Options::default();
        let resolution = resolve(&world_of(objects), &options);
        let snapshot = &resolution.gateways[0].snapshot;
        for (path, header) in ["/", "/a", "/ab", "/a/b", "/a/bc", "/abc", "/x"].into_iter().flat_map(|it| [(it, false), (it, true)]) {
            let claiming = claims.iter().enumerate().filter(|(_, it)| it.matches(path, header));
            let winner = claiming.min_by_key(|(place, it)| it.order(*place));
            let expected = winner.map_or("404".to_owned(), |(place, _)| format!("web/s{place}/80"));
            let headers = [("x", "1")];
            let headers = if header { &headers[..] } else { &[] };
            let request = Request { host: "h.test", path, headers, ..GET };
            prop_assert_eq!(answer(snapshot, &request), expected, "{} {}", path, header);
        }
        let mut resolver = Resolver::default();
        prop_assert_eq!(resolver.resolve(&world_of(shuffled), &options), resolution);
    }
}
