//! Parameters of a GatewayClass that become unusable. Only its own Gateways may be affected.

use super::http_proxies::{ask, root};
use super::ingress_settings::to;
use super::ingresses::CLASS;
use super::{HTTP, gateway, world};
use crate::{Options, Resolver};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::LastParameters;

const BROKEN_CLASS: &str = "---
kind: GatewayClass
metadata: {name: old, creationTimestamp: \"2020-01-01T00:00:00Z\"}
spec:
  controllerName: projectsesame.io/gateway-controller
  parametersRef: {group: projectsesame.io, kind: SesameConfiguration, name: old, namespace: web}
---
kind: Gateway
metadata: {name: other, namespace: web}
spec: {gatewayClassName: old, listeners: [{name: http, port: 81, protocol: HTTP}]}
";

fn parameters(spec: &str) -> String {
    format!(
        "---\nkind: SesameConfiguration\nmetadata: {{name: old, namespace: web}}\nspec: {spec}\n"
    )
}

#[test]
fn last_settings_survive_unusable_parameters() {
    let gateway = gateway(HTTP);
    let objects = format!("{gateway}{BROKEN_CLASS}{CLASS}{}", root("r", &to("a")));
    let options = Options::default();
    for (settings, answer) in [
        ("{}", "web/a/80"),
        ("{ingress: {watch: Serve}}", "web/a/80"),
        ("{ingress: {rootNamespaces: [other]}}", "404"),
        ("{ingress: {watch: 'Off'}}", "404"),
    ] {
        let mut resolver = Resolver::default();
        let before = world(&format!("{objects}{}", parameters(settings)));
        let good = resolver.resolve(&before, &options);
        assert_eq!(ask(&good, "/"), answer, "{settings}");
        assert!(good.kept_layers.is_empty());
        let mut last = good.last_parameters.clone();
        for broken in [String::new(), parameters("{ingress: {watch: Serv}}")] {
            let mut now = world(&format!("{objects}{broken}"));
            now.last_parameters = last;
            let resolution = resolver.resolve(&now, &options);
            assert!(!resolution.layers_unknown);
            assert_eq!(ask(&resolution, "/"), answer, "{settings} {broken}");
            let route = |it: &crate::Resolution| {
                let routes = it.statuses.routes.iter();
                routes
                    .map(|(key, status)| (key.clone(), status.clone()))
                    .collect::<Vec<_>>()
            };
            assert_eq!(route(&resolution), route(&good));
            let other = NamespacedName::new("web", "other");
            assert!(resolution.retained.contains(&other));
            assert!(resolution.kept_layers.contains(&other));
            assert_eq!(resolution.kept_layers.len(), 1);
            assert!(resolution.unless_published.is_empty());
            last = resolution.last_parameters.clone();
            assert_eq!(last, good.last_parameters);
        }
    }
}

#[test]
fn new_class_without_parameters_changes_no_settings() {
    let objects = format!("{}{CLASS}{}", gateway(HTTP), root("r", &to("a")));
    let options = Options::default();
    let mut resolver = Resolver::default();
    let mut last = resolver.resolve(&world(&objects), &options).last_parameters;
    for _ in 0..2 {
        let mut now = world(&format!("{objects}{BROKEN_CLASS}"));
        now.last_parameters = last;
        let resolution = resolver.resolve(&now, &options);
        assert!(!resolution.layers_unknown);
        assert_eq!(ask(&resolution, "/"), "web/a/80");
        last = resolution.last_parameters;
    }
    // A new process cannot know that the class is new.
    last = LastParameters::new();
    for _ in 0..2 {
        let mut now = world(&format!("{objects}{BROKEN_CLASS}"));
        now.last_parameters = last;
        let resolution = resolver.resolve(&now, &options);
        assert!(resolution.layers_unknown);
        last = resolution.last_parameters;
    }
}

#[test]
fn unknown_settings_keep_publications_of_affected_gateways() {
    let second = "---\nkind: Gateway\nmetadata: {name: second, namespace: web}\nspec: \
                  {gatewayClassName: sesame, listeners: [{name: http, port: 82, protocol: HTTP}]}\n";
    let objects = format!("{}{second}{BROKEN_CLASS}{CLASS}", gateway(HTTP));
    let name = |name: &str| NamespacedName::new("web", name);
    for (more, expected) in [
        (String::new(), vec![name("gw")]),
        (
            root("r", &to("a")),
            vec![name("gw"), name("other"), name("second")],
        ),
    ] {
        let resolution = crate::resolve(&world(&format!("{objects}{more}")), &Options::default());
        assert!(resolution.layers_unknown);
        let kept: Vec<NamespacedName> = resolution.unless_published.iter().cloned().collect();
        assert_eq!(kept, expected);
        let status = &resolution.statuses.gateways[&name("gw")];
        let message = &status.conditions[0].message;
        assert!(message.contains("keeps its last state"), "{message}");
    }
}
