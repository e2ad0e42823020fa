//! Compares how Sesame serves foreign objects directly with how it serves their conversion.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sesame_explain::{ExplainRequest, ExplainedOutcome, Explainer, witnesses};
use sesame_kinds::decode::decode_value;
use sesame_kinds::world::{Kind, World};
use sesame_proto::schema::Snapshot;
use sesame_resolver::{Options, ResolvedFor, Resolver};

use super::super::{Conversion, FORMATS, as_table, convert};
use super::parse;

const DEFAULTS: &str = include_str!("../../../../tests/golden/_defaults/input.yaml");
const NGINX: &str = include_str!("nginx.yaml");
const CONTOUR: &str = include_str!("contour.yaml");
const OVERLAPS: &str = include_str!("overlaps.yaml");

/// Returns `None` if the objects contain no Gateway with the name of the class.
pub(super) fn resolved(class: &str, objects: &[Value]) -> Option<Snapshot> {
    let mut world = World::default();
    for object in objects {
        let text = |name: &str| object[name].as_str().expect("text");
        let (version, kind) = (text("apiVersion"), text("kind"));
        let kind = Kind::find(version, kind).expect("a known kind");
        let decoded = decode_value(object.clone(), kind, version);
        let decoded = decoded.unwrap_or_else(|error| panic!("{object}: {error:?}"));
        world.insert(decoded.object);
    }
    let options = Options {
        resolved_for: ResolvedFor::Cluster,
        ..Options::default()
    };
    let resolution = Resolver::default().resolve(&world, &options);
    let mut gateways = resolution.gateways.into_iter();
    let gateway = gateways.find(|it| it.gateway.name == class)?;
    Some(Snapshot::clone(&gateway.snapshot))
}

/// Objects that both worlds contain.
fn is_shared(object: &Value) -> bool {
    let kinds = [
        "Service",
        "EndpointSlice",
        "Secret",
        "ConfigMap",
        "Namespace",
    ];
    kinds.iter().any(|kind| object["kind"] == **kind)
}

pub(super) fn shared_defaults() -> Vec<Value> {
    parse(DEFAULTS).into_iter().filter(is_shared).collect()
}

/// A class whose Gateway has the name that a conversion gives it.
fn class(name: &str) -> Vec<Value> {
    parse(&format!(
        "
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {{name: {name}, annotations: {{projectsesame.io/annotations: Nginx}}}}
spec:
  controller: projectsesame.io/ingress-controller
  parameters: {{apiGroup: gateway.networking.k8s.io, kind: Gateway, scope: Namespace, namespace: default, name: {name}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: sesame}}
spec: {{controllerName: projectsesame.io/gateway-controller}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: {name}, namespace: default}}
spec:
  gatewayClassName: sesame
  listeners: [{{name: http, port: 80, protocol: HTTP, allowedRoutes: {{namespaces: {{from: All}}}}}}]
"
    ))
}

pub(super) fn from(format: &str, objects: &[Value], accepted: &[&str]) -> Conversion {
    let accepted: Vec<String> = accepted.iter().map(|it| (*it).to_owned()).collect();
    let format = FORMATS
        .iter()
        .find(|it| it.name == format)
        .expect("a format");
    convert(format, objects, &accepted)
}

pub(super) fn outcome(explainer: &mut Explainer<'_>, request: &ExplainRequest) -> String {
    let named = |name: &Option<String>| {
        let name = name.as_deref().unwrap_or_default();
        name.splitn(5, '/').take(4).collect::<Vec<_>>().join("/")
    };
    match explainer.explain(request).outcome {
        ExplainedOutcome::Refused { .. } => "closed".to_owned(),
        ExplainedOutcome::Answered { status, .. } => format!("answer {status}"),
        ExplainedOutcome::Redirected {
            status, location, ..
        } => format!("{status} to {location}"),
        ExplainedOutcome::Forwarded {
            backends,
            host,
            path,
            request_timeout_ms,
            ..
        } => {
            let backends = backends.iter();
            let backends = backends.map(|it| format!("{} × {}", it.weight, named(&it.backend)));
            let backends: Vec<String> = backends.collect();
            format!(
                "{} as {host}{path}, {request_timeout_ms:?}",
                backends.join(", ")
            )
        }
        ExplainedOutcome::Connected { backends } => format!("connected to {}", backends.len()),
    }
}

/// Leaves out differences that the reports name.
fn protections(explainer: &mut Explainer<'_>, request: &ExplainRequest) -> BTreeSet<String> {
    let found = explainer.protections(request).into_iter();
    let found = found.map(|it| {
        it.replace("peer_certificate: true", "peer_certificate: false")
            .replace("text_body: true", "text_body: false")
            .replace("fails open true", "fails open false")
    });
    found.collect()
}

/// Returns a line for each request that is handled or protected differently.
pub(super) fn differences(old: &Snapshot, new: &Snapshot) -> BTreeSet<String> {
    let mut requests = witnesses(old);
    requests.extend(witnesses(new));
    assert!(!requests.is_empty());
    let (mut before, mut after) = (Explainer::new(old), Explainer::new(new));
    let mut found = BTreeSet::new();
    for request in &requests {
        let outcomes = [&mut before, &mut after].map(|it| outcome(it, request));
        if outcomes[0] != outcomes[1] {
            found.insert(format!("{request}: {} → {}", outcomes[0], outcomes[1]));
        }
        let protections = [&mut before, &mut after].map(|it| protections(it, request));
        let lost: Vec<_> = protections[0].difference(&protections[1]).collect();
        let gained: Vec<_> = protections[1].difference(&protections[0]).collect();
        if !lost.is_empty() || !gained.is_empty() {
            found.insert(format!("{request}: lost {lost:?}, gained {gained:?}"));
        }
    }
    found
}

struct Comparison {
    class: String,
    original: Snapshot,
    shared: Vec<Value>,
    conversion: Conversion,
}

impl Comparison {
    fn new(format: &str, class_name: &str, text: &str, is_complete: bool) -> Self {
        let objects = parse(text);
        let objects: Vec<Value> = objects
            .into_iter()
            .filter(|it| it["kind"] != "IngressClass")
            .collect();
        let known = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IngressClass",
            "metadata": {"name": class_name},
            "spec": {"controller": "k8s.io/ingress-nginx"},
        });
        let input: Vec<Value> = objects.iter().cloned().chain([known]).collect();
        let conversion = from(format, &input, &[]);
        let report = as_table(&conversion);
        assert!(!is_complete || conversion.is_complete(), "{report}");
        let own = objects.iter().filter(|it| is_shared(it)).cloned();
        let shared: Vec<Value> = shared_defaults().into_iter().chain(own).collect();
        let mut original = class(class_name);
        original.extend(shared_defaults());
        original.extend(objects);
        Self {
            class: class_name.to_owned(),
            original: resolved(class_name, &original).expect("a Gateway"),
            shared,
            conversion,
        }
    }

    fn differences(&self, converted: &[Value]) -> BTreeSet<String> {
        let objects: Vec<Value> = self.shared.iter().chain(converted).cloned().collect();
        differences(
            &self.original,
            &resolved(&self.class, &objects).expect("a Gateway"),
        )
    }

    /// Removes each protection from the output in turn. The comparison must find each.
    fn finds_every_lost_protection(&self) {
        let baseline = self.differences(&self.conversion.objects);
        let mut count = 0;
        for (index, object) in self.conversion.objects.iter().enumerate() {
            let parts: Vec<String> = match object["kind"].as_str() {
                Some("AccessPolicy") => {
                    let spec = object["spec"].as_object().expect("a spec");
                    spec.keys()
                        .filter(|it| *it != "targetRefs")
                        .cloned()
                        .collect()
                }
                Some("TrafficPolicy") => ["rateLimits", "requestBody"].map(str::to_owned).to_vec(),
                _ => continue,
            };
            for part in parts {
                let mut objects = self.conversion.objects.clone();
                let spec = objects[index]["spec"].as_object_mut().expect("a spec");
                if spec.remove(&part).is_none() {
                    continue;
                }
                if spec.len() == 1 {
                    objects.remove(index);
                }
                let found = self.differences(&objects);
                assert_ne!(found, baseline, "{part} of {object}");
                count += 1;
            }
        }
        assert!(count > 0);
    }
}

pub(super) fn listed(found: &BTreeSet<String>) -> String {
    found.iter().fold(String::new(), |all, it| all + it + "\n")
}

#[test]
fn converted_ingresses_are_served_alike() {
    let comparison = Comparison::new("ingress-nginx", "nginx", NGINX, true);
    let found = comparison.differences(&comparison.conversion.objects);
    assert_eq!(listed(&found), "");
    comparison.finds_every_lost_protection();
}

#[test]
fn converted_proxies_are_served_alike() {
    let comparison = Comparison::new("contour", "contour", CONTOUR, true);
    let found = comparison.differences(&comparison.conversion.objects);
    assert_eq!(listed(&found), "");
    comparison.finds_every_lost_protection();
}

macro_rules! golden {
    ($format:literal, $name:literal) => {
        (
            $format,
            $name,
            include_str!(concat!("../../../../tests/golden/", $name, "/input.yaml")),
        )
    };
}

const GOLDEN: &[(&str, &str, &str)] = &[
    golden!("ingress-nginx", "ingress-nginx"),
    golden!("ingress-nginx", "ingress-nginx-canary"),
    golden!("ingress-nginx", "ingress-nginx-invalid"),
    golden!("ingress-nginx", "ingress-withheld"),
    golden!("contour", "http-proxy"),
    golden!("contour", "http-proxy-authorization"),
    golden!("contour", "http-proxy-endpoints"),
    golden!("contour", "http-proxy-fallback"),
    golden!("contour", "http-proxy-routes"),
    golden!("contour", "http-proxy-services"),
    golden!("contour", "http-proxy-tls"),
    golden!("contour", "http-proxy-tokens"),
];

/// Whatever a conversion leaves out, no request passes with fewer checks than before.
#[test]
fn golden_cases_lose_no_protection() {
    let passed = GOLDEN
        .iter()
        .map(|(format, name, text)| passed(format, "edge", name, text));
    let passed: usize = passed.sum();
    assert!(passed > 10, "{passed}");
}

#[test]
fn overlapping_objects_lose_no_protection() {
    for case in OVERLAPS.split("# Case: ").skip(1) {
        let (name, text) = case.split_once('\n').expect("a title");
        if text.contains("HTTPProxy") {
            passed("contour", "contour", name, text);
        } else {
            passed("ingress-nginx", "nginx", name, text);
        }
    }
}

/// Counts the requests that are forwarded after a conversion. Each must be so before, with the same
/// checks.
fn passed(format: &str, class: &str, name: &str, text: &str) -> usize {
    let Comparison {
        class: _,
        original,
        shared,
        conversion,
    } = Comparison::new(format, class, text, false);
    let objects: Vec<Value> = shared.into_iter().chain(conversion.objects).collect();
    let Some(converted) = resolved(class, &objects) else {
        return 0;
    };
    let (mut before, mut after) = (Explainer::new(&original), Explainer::new(&converted));
    let requests = witnesses(&original)
        .into_iter()
        .chain(witnesses(&converted));
    let mut passed = 0;
    for request in requests {
        let outcomes = [&mut before, &mut after].map(|it| outcome(it, &request));
        if !outcomes[1].contains(" × ") {
            continue;
        }
        let [old, new] = [&mut before, &mut after].map(|it| protections(it, &request));
        let lost: Vec<_> = old.difference(&new).collect();
        assert!(lost.is_empty(), "{name}: {request}: {lost:?}");
        assert!(
            outcomes[0].contains(" × "),
            "{name}: {request}: {outcomes:?}"
        );
        passed += 1;
    }
    passed
}

#[test]
fn shared_objects_are_left_to_the_cluster() {
    let conversion = from("ingress-nginx", &shared_defaults(), &[]);
    assert!(conversion.objects.is_empty());
    assert!(json!(conversion.rows.len()).as_u64() > Some(0));
}
