//! `spec.ingress.listeners`: Ingresses and HTTPProxies without a Gateway object.

use std::sync::Arc;

use super::http_proxies::{NONE, errors, root, send};
use super::ingresses::{CLASS, ingress, path, rule};
use super::{ConditionState, HTTP, gateway, holds, objects, route, world};
use crate::incremental;
use crate::settings::check::faults;
use crate::{ImpliedGateway, Options, Resolution, ResolvedFor, Resolver, resolve};
use sesame_kinds::api::{NamespacedName, SesameConfiguration};
use sesame_kinds::status::{ConditionType, Reason};
use sesame_kinds::world::{Kind, World};

const LISTENERS: &str = "gatewayRef: {namespace: web, name: gw}, listeners: [{port: 80}]";
const GATEWAY_API: [Kind; 2] = [Kind::GatewayClass, Kind::Gateway];

fn configuration(ingress: &str) -> SesameConfiguration {
    let text = format!("metadata: {{name: own, generation: 4}}\nspec: {{ingress: {{{ingress}}}}}");
    serde_saphyr::from_str(&text).expect("a configuration")
}

fn own(ingress: &str) -> Options {
    Options {
        configuration: Some(Arc::new(configuration(ingress))),
        resolved_for: ResolvedFor::Cluster,
        ..Options::default()
    }
}

/// An HTTPProxy for `h.test`, and an Ingress for one of its paths.
fn layers() -> String {
    let to = "routes: [{services: [{name: a, port: 80}]}]";
    let rules = rule("h.test", &[path("/i", "Prefix", "b")]);
    format!("{CLASS}{}{}", root("r", to), ingress("i", &rules))
}

/// A SesameConfiguration in manifests.
fn manifest(spec: &str) -> String {
    format!(
        "---\nkind: SesameConfiguration\nmetadata: {{name: edge, namespace: web}}\nspec: {{{spec}}}\n"
    )
}

fn without_gateway_api(yaml: &str) -> World {
    world(yaml).without(&GATEWAY_API)
}

fn assert_serves_layers(resolution: &Resolution) {
    assert_eq!(send(resolution, 80, "/", &[]), "web/a/80");
    assert_eq!(send(resolution, 80, "/i", &[]), "web/b/80");
    assert_eq!(errors(resolution, "r"), NONE);
    let snapshot = &resolution.gateways[0].snapshot;
    assert_eq!(snapshot.gateway, "Gateway/web/gw");
    let listener = &snapshot.ports[0].listeners[0];
    assert_eq!(listener.name, "Gateway/web/gw/listeners/http-80");
    assert!(resolution.statuses.gateway_classes.is_empty());
    assert_eq!(resolution.problems, []);
}

#[test]
fn listeners_replace_gateway_class_and_gateway() {
    let world = without_gateway_api(&layers());
    assert!(resolve(&world, &own("watch: Serve")).gateways.is_empty());
    let resolution = resolve(&world, &own(LISTENERS));
    assert_serves_layers(&resolution);
    let status = &resolution.statuses.gateways[&NamespacedName::new("web", "gw")];
    assert_eq!(status.conditions[0].observed_generation, 4);
    let settings = &resolution.settings[&NamespacedName::new("web", "gw")];
    assert_eq!(settings.implied_class.as_deref(), Some("sesame"));
    for watch in ["watch: Off", "watch: Report"] {
        let resolution = resolve(&world, &own(&format!("{watch}, {LISTENERS}")));
        assert!(resolution.gateways.is_empty(), "{watch}");
    }
}

#[test]
fn host_takes_listeners_from_a_manifest() {
    let of_manifest = |more: &str| {
        let spec = format!("ingress: {{{LISTENERS}}}{more}");
        without_gateway_api(&format!("{}{}", manifest(&spec), layers()))
    };
    let world = of_manifest(", ports: {offset: 8000}");
    let resolution = resolve(&world, &Options::default());
    assert_serves_layers(&resolution);
    assert_eq!(resolution.gateways[0].snapshot.ports[0].inside, 8080);
    // In a cluster, a configuration to which nothing refers has no effect.
    let in_cluster = Options {
        resolved_for: ResolvedFor::Cluster,
        ..Options::default()
    };
    assert!(resolve(&world, &in_cluster).gateways.is_empty());

    let resolution = resolve(&of_manifest(", ports: {offset: -1}"), &Options::default());
    let name = NamespacedName::new("web", "gw");
    assert!(resolution.retained.contains(&name));
    let conditions = &resolution.statuses.gateways[&name].conditions;
    assert_eq!(
        holds(conditions, ConditionType::Accepted),
        ConditionState::False(Reason::InvalidParameters)
    );
}

#[test]
fn listeners_in_class_parameters_use_the_class() {
    let class = "---\nkind: GatewayClass\nmetadata: {name: edge}\nspec: {controllerName: \
        projectsesame.io/gateway-controller, parametersRef: {group: projectsesame.io, kind: \
        SesameConfiguration, name: edge, namespace: web}}\n";
    let manifest = manifest(&format!("ingress: {{{LISTENERS}}}"));
    let mut world = world(&format!("{class}{manifest}{}", layers()));
    world.remove(&Kind::GatewayClass.named(NamespacedName::new("", "sesame")));
    for resolved_for in [ResolvedFor::Host, ResolvedFor::Cluster] {
        let options = Options {
            resolved_for,
            ..Options::default()
        };
        let resolution = resolve(&world, &options);
        assert_eq!(send(&resolution, 80, "/", &[]), "web/a/80");
        let implied = ImpliedGateway::find(&world, &options).expect("a Gateway");
        assert_eq!((implied.class(), implied.implies_class()), ("edge", false));
        assert_eq!(resolution.statuses.gateway_classes.len(), 1);
    }
}

#[test]
fn gateway_object_takes_precedence_over_listeners() {
    let alt = HTTP.replace("80", "8080");
    let world = world(&format!("{}{}", gateway(&alt), layers()));
    let resolution = resolve(&world, &own(LISTENERS));
    assert_eq!(send(&resolution, 8080, "/", &[]), "web/a/80");
    assert_eq!(send(&resolution, 80, "/", &[]), "404");
    let [problem] = resolution.problems.as_slice() else {
        panic!("one problem: {:?}", resolution.problems);
    };
    assert_eq!(problem.object.to_string(), "SesameConfiguration/own");
    assert!(problem.message.contains("Gateway web/gw exists"));

    // A Gateway object needs a GatewayClass object.
    let other = gateway(&alt).replace("name: gw", "name: other");
    let world = super::world(&format!("{other}{}", layers())).without(&[Kind::GatewayClass]);
    let resolution = resolve(&world, &own(LISTENERS));
    assert_eq!(resolution.gateways.len(), 1);
    assert_serves_layers(&resolution);
}

#[test]
fn routes_of_other_namespaces_do_not_attach_to_all_hosts() {
    let elsewhere = |yaml: &str| yaml.replacen("namespace: web", "namespace: other", 1);
    let rules = rule("h.test", &[path("/far", "Prefix", "b")]);
    let far = elsewhere(&ingress("far", &rules));
    let spec = "parentRefs: [{name: gw, namespace: web}]\nhostnames: [h.test]\nrules: \
        [{matches: [{path: {value: /i}}], backendRefs: [{name: b, port: 80}]}]";
    let top = elsewhere(&route("top", spec));
    let service = "---\nkind: Service\nmetadata: {name: b, namespace: other}\nspec: {ports: [{port: \
        80}]}\n";
    let world = without_gateway_api(&format!("{}{far}{top}{service}", layers()));
    let served = |listener: &str| {
        let ingress = format!("gatewayRef: {{namespace: web, name: gw}}, listeners: [{listener}]");
        let resolution = resolve(&world, &own(&ingress));
        let tables = format!("{:?}", resolution.gateways[0].snapshot.route_tables);
        ["Ingress/other/far", "HTTPRoute/other/top"].map(|name| tables.contains(name))
    };
    assert_eq!(served("{port: 80}"), [true, false]);
    // Such a listener has no other way to permit other namespaces.
    assert_eq!(served("{port: 80, hostname: h.test}"), [true, true]);
}

#[test]
fn changed_route_of_implied_gateway_is_incremental() {
    let options = own(LISTENERS);
    let to = |path: &str| {
        route(
            "top",
            &format!(
                "hostnames: [k.test]\nrules: [{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: a, port: 80}}]}}]"
            ),
        )
    };
    let before = without_gateway_api(&format!("{}{}", layers(), to("/one")));
    let mut resolver = Resolver::default();
    resolver.resolve(&before, &options);
    let mut after = before.clone();
    let changed = objects(&to("/two"));
    let keys: Vec<_> = changed
        .iter()
        .map(sesame_kinds::world::AnyObject::key)
        .collect();
    for object in changed {
        after.insert(object);
    }
    let delta = incremental::resolve(&before, &after, &keys, &mut resolver, &options);
    let gateways = delta.expect("a small change").routes.gateways;
    assert_eq!(gateways.len(), 1);
    assert_eq!(gateways[0].0, NamespacedName::new("web", "gw"));
}

#[test]
fn wrong_listeners_are_faults_of_the_configuration() {
    let reference = "gatewayRef: {namespace: web, name: gw}";
    for (ingress, expected) in [
        (
            "listeners: [{port: 80}]".to_owned(),
            "gatewayRef is missing",
        ),
        (
            format!("{reference}, listeners: []"),
            "listeners has 0 entries",
        ),
        (
            format!("{reference}, listeners: [{{port: 0}}]"),
            "listeners[0].port: 0",
        ),
        (
            format!("{reference}, listeners: [{{port: 80}}, {{port: 80, hostname: h.test}}]"),
            "listeners[1].name: \"http-80\" is not unique",
        ),
        (
            format!("{reference}, listeners: [{{port: 80, hostname: H_}}]"),
            "listeners[0].hostname",
        ),
        (
            format!("{reference}, listeners: [{{port: 443, protocol: HTTPS}}]"),
            "listeners[0].secretName is missing",
        ),
        (
            format!("{reference}, listeners: [{{port: 80, secretName: s}}]"),
            "expected only with protocol HTTPS",
        ),
        (
            format!("{reference}, listeners: [{{port: 80, protocol: TCP}}]"),
            "protocol \"TCP\" is not one of HTTP, HTTPS",
        ),
        (
            format!("{reference}, http: 8080, listeners: [{{port: 80}}]"),
            "http: 8080: listeners has no HTTP listener",
        ),
    ] {
        let found = faults(&configuration(&ingress)).join("; ");
        assert!(found.contains(expected), "{expected}: {found}");
    }
    assert_eq!(faults(&configuration(LISTENERS)), NONE);
}

#[test]
fn missing_listener_on_http_port_is_a_problem() {
    let world = world(&format!("{}{}", gateway(HTTP), layers()));
    let problems = |port| resolve(&world, &own(&format!("http: {port}"))).problems;
    assert_eq!(problems(80), []);
    let found = problems(8081);
    let [problem] = found.as_slice() else {
        panic!("one problem: {found:?}");
    };
    assert_eq!(problem.object.to_string(), "Gateway/web/gw");
    assert!(problem.message.contains("port 8081 (spec.ingress.http)"));
}
