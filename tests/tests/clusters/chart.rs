//! The Helm chart renders the same objects as the kustomizations, and rejects unknown values.

use serde_json::{Value, json};
use sesame_tests::controller::NAMESPACE;
use sesame_tests::deployed::{
    Objects, by_name, chart, differences, helm, rendered_by_helm, rendered_by_kustomize,
    rendered_with_component,
};
use sesame_tests::envoy::workspace;

#[test]
fn default_chart_matches_kustomizations() {
    let deploy = workspace().join("controller/deploy");
    let mut wanted = rendered_by_kustomize(&deploy);
    wanted.extend(rendered_by_kustomize(&deploy.join("agent")));
    let mut wanted = by_name(wanted);
    // With `--create-namespace`, Helm creates the namespace itself.
    let namespace = wanted.remove(&("Namespace".to_owned(), format!("/{NAMESPACE}")));
    assert!(namespace.is_some());
    let rendered = by_name(rendered_by_helm(NAMESPACE, &json!({})));
    assert_same(&rendered, &wanted);

    let elsewhere = rendered_by_helm("edge", &json!({}));
    assert_eq!(elsewhere.len(), wanted.len());
    for object in elsewhere {
        let text = object.to_string();
        assert!(!text.contains("\"namespace\":\"sesame-system\""), "{text}");
    }
}

#[test]
fn namespaced_chart_matches_kustomize_component() {
    let mut wanted = by_name(rendered_with_component("namespaced"));
    wanted.retain(|(kind, _), _| kind != "Namespace");
    let values = json!({"watchNamespaces": ["shop"], "agent": {"enabled": false}});
    let rendered = by_name(rendered_by_helm(NAMESPACE, &values));
    assert_same(&rendered, &wanted);
}

#[test]
fn chart_grants_upstream_gateway_rights_only_if_enabled() {
    let plain = by_name(rendered_by_helm(NAMESPACE, &json!({})));
    let values = json!({"controller": {"upstreamGateways": true}});
    let mut rendered = by_name(rendered_by_helm(NAMESPACE, &values));
    rendered.retain(|name, _| !plain.contains_key(name));
    let path = workspace().join("controller/deploy/upstreams.yaml");
    let text = std::fs::read_to_string(path).expect("the rights");
    let documents = serde_saphyr::from_multiple::<Value>(&text).expect("YAML");
    assert_same(&rendered, &by_name(documents));
}

#[test]
fn chart_grants_no_rights_for_disabled_layers() {
    let text = |values: &Value| json!(rendered_by_helm(NAMESPACE, values)).to_string();
    let classes = "\"ingressclasses\"";
    let off = text(&json!({"controller": {"ingresses": false, "httpProxies": false}}));
    for word in [classes, "\"ingresses\"", "projectcontour.io"] {
        assert!(!off.contains(word), "{word}");
    }
    for word in ["--ingresses=false", "--http-proxies=false"] {
        assert!(off.contains(word), "{word}");
    }
    let proxies = text(&json!({"controller": {"ingresses": false}}));
    assert!(proxies.contains(classes) && proxies.contains("httpproxies/status"));
    let ingresses = text(&json!({"controller": {"httpProxies": false}}));
    assert!(ingresses.contains(classes) && ingresses.contains("ingresses/status"));
    assert!(ingresses.contains("tlscertificatedelegations") && !ingresses.contains("httpproxies"));
}

#[test]
fn chart_installs_and_keeps_contour_definitions_if_enabled() {
    let plain = by_name(rendered_by_helm(NAMESPACE, &json!({})));
    let values = json!({"cluster": {"contourDefinitions": true}});
    let mut rendered = by_name(rendered_by_helm(NAMESPACE, &values));
    rendered.retain(|name, _| !plain.contains_key(name));
    for definition in rendered.values_mut() {
        let annotations = definition["metadata"]["annotations"].take();
        assert_eq!(annotations, json!({"helm.sh/resource-policy": "keep"}));
    }
    let path = workspace().join("controller/deploy/contour/crds.yaml");
    let text = std::fs::read_to_string(path).expect("the definitions");
    let documents = serde_saphyr::from_multiple::<Value>(&text).expect("YAML");
    assert_same(&rendered, &by_name(documents));
}

#[test]
fn chart_grants_optional_rights_in_listed_namespaces() {
    let plain = by_name(rendered_by_helm(NAMESPACE, &json!({})));
    for (value, namespace, file) in [
        ("ocgBundleNamespaces", "mesh", "ocg-bundles.yaml"),
        ("acmeNamespaces", "default", "acme.yaml"),
    ] {
        let values = json!({"controller": {value: [namespace]}});
        let mut rendered = by_name(rendered_by_helm(NAMESPACE, &values));
        rendered.retain(|name, _| !plain.contains_key(name));
        let path = workspace().join("controller/deploy").join(file);
        let text = std::fs::read_to_string(path).expect("the rights");
        let documents = serde_saphyr::from_multiple::<Value>(&text).expect("YAML");
        assert_same(&rendered, &by_name(documents));
    }
}

#[test]
fn chart_network_policies_match_component_if_enabled() {
    let mut wanted = by_name(rendered_with_component("network-policies"));
    wanted.retain(|(kind, _), _| kind == "NetworkPolicy");
    let policies = |values: &Value| {
        let mut rendered = by_name(rendered_by_helm(NAMESPACE, values));
        rendered.retain(|(kind, _), _| kind == "NetworkPolicy");
        rendered
    };
    assert_same(
        &policies(&json!({"networkPolicies": {"enabled": true}})),
        &wanted,
    );
    let narrow = json!({"networkPolicies": {"enabled": true,
        "apiServer": {"cidrs": ["192.0.2.10/32"], "ports": [6443]}, "metricsFrom": {"projectsesame.io/metrics": null, "name": "metrics"}}});
    let controller = (
        "NetworkPolicy".to_owned(),
        format!("{NAMESPACE}/sesame-controller"),
    );
    let spec = policies(&narrow)[&controller]["spec"].clone();
    let to = json!([{"to": [{"ipBlock": {"cidr": "192.0.2.10/32"}}], "ports": [{"protocol": "TCP", "port": 6443}]}]);
    assert_eq!(spec["egress"], to);
    let from = &spec["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"];
    assert_eq!(*from, json!({"name": "metrics"}));
}

#[test]
fn chart_gives_metrics_separate_address_and_guard() {
    let values = json!({"controller": {
        "metrics": {"port": 8082, "address": "::", "tlsSecret": "pair", "clientCertificates": true, "tokenSecret": "word"},
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    }, "networkPolicies": {"enabled": true}});
    let rendered = by_name(rendered_by_helm(NAMESPACE, &values));
    let of = |kind: &str| &rendered[&(kind.to_owned(), format!("{NAMESPACE}/sesame-controller"))];
    let pod = &of("Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let flags = container["args"].as_array().expect("a list");
    let flags: Vec<&str> = flags.iter().filter_map(Value::as_str).collect();
    let wanted = [
        "--metrics-address=[::]:8082",
        "--metrics-certificate=/etc/sesame/metrics-tls/tls.crt",
        "--metrics-key=/etc/sesame/metrics-tls/tls.key",
        "--metrics-client-ca=/etc/sesame/metrics-tls/ca.crt",
        "--metrics-token-file=/etc/sesame/metrics-token/token",
    ];
    assert!(flags.ends_with(&wanted), "{flags:?}");
    // Kubelets have neither a client certificate nor a token, so probes use a separate port.
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], "http");
    }
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    let volumes = pod["volumes"].as_array().expect("volumes");
    let names = |all: &[Value]| -> Vec<Value> { all.iter().map(|it| it["name"].clone()).collect() };
    assert_eq!(names(mounts), ["metrics-tls", "metrics-token", "more"]);
    assert_eq!(names(volumes), names(mounts));
    assert_eq!(volumes[0]["secret"]["secretName"], "pair");
    assert_eq!(volumes[1]["secret"]["secretName"], "word");
    let port = json!({"name": "metrics", "port": 8082, "targetPort": "metrics"});
    assert_eq!(of("Service")["spec"]["ports"][1], port);
    let allowed = &of("NetworkPolicy")["spec"]["ingress"][0]["ports"];
    assert_eq!(*allowed, json!([{"protocol": "TCP", "port": "metrics"}]));
}

#[test]
fn chart_accepts_values_in_metrics_page() {
    let path = workspace().join("docs/metrics.md");
    let text = std::fs::read_to_string(path).expect("a page");
    let mut blocks = text.split("```yaml\n").skip(1);
    let block = blocks.find(|block| block.starts_with("controller:"));
    let block = block.and_then(|block| block.split("```").next());
    let values: Value = serde_saphyr::from_str(block.expect("values")).expect("YAML");
    let rendered = rendered_by_helm(NAMESPACE, &values);
    let text = json!(rendered).to_string();
    assert!(text.contains("--metrics-address=0.0.0.0:8082"), "{text}");
}

fn assert_same(rendered: &Objects, wanted: &Objects) {
    let names = |objects: &Objects| {
        let names = objects.keys().map(|(kind, name)| format!("{kind} {name}"));
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(rendered), names(wanted));
    let mut found = Vec::new();
    for (name, object) in rendered {
        let (kind, of) = name;
        differences(&format!("{kind} {of}: "), object, &wanted[name], &mut found);
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn chart_version_matches_workspace() {
    let text = std::fs::read_to_string(chart().join("Chart.yaml")).expect("a chart");
    let description: Value = serde_saphyr::from_str(&text).expect("YAML");
    for field in ["version", "appVersion"] {
        assert_eq!(description[field], env!("CARGO_PKG_VERSION"), "{field}");
    }
}

#[test]
fn chart_passes_lint_and_rejects_unknown_values() {
    let chart = chart().display().to_string();
    let linted = helm(&["lint", "--strict", "--quiet", &chart]);
    assert!(linted.status.success(), "{linted:?}");
    for (value, words) in [
        (
            "agnt.enabled=true",
            "additional properties 'agnt' not allowed",
        ),
        (
            "images.agent.version=1",
            "/images/agent': additional properties 'version' not allowed",
        ),
        (
            "controller.replicas=two",
            "/controller/replicas': got string, want integer",
        ),
        (
            "watchNamespaces={Shop}",
            "/watchNamespaces/0': 'Shop' does not match pattern",
        ),
        (
            "networkPolicies.apiServer.cidrs={192.0.2.10}",
            "/networkPolicies/apiServer/cidrs/0': '192.0.2.10' does not match pattern",
        ),
        ("fleet=", "/fleet': '' does not match pattern"),
        // A token without a metrics port, and client certificates without TLS.
        (
            "controller.metrics.tokenSecret=word",
            "/controller/metrics/tokenSecret': maxLength",
        ),
        (
            "controller.metrics.port=8082,controller.metrics.clientCertificates=true",
            "/controller/metrics/tlsSecret': minLength",
        ),
        ("controller.replicas=null", "missing property 'replicas'"),
    ] {
        let refused = helm(&["template", "sesame", &chart, "--set", value]);
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{value} is accepted");
        assert!(why.contains(words), "{value}: {why}");
    }
}

fn values_of(schema: &Value, root: &Value, at: &str, found: &mut Vec<String>) {
    let named = schema["$ref"].as_str();
    let named = named.and_then(|name| root.pointer(name.trim_start_matches('#')));
    let schema = named.unwrap_or(schema);
    let Some(properties) = schema["properties"].as_object() else {
        found.push(at.trim_start_matches('.').to_owned());
        return;
    };
    for (name, schema) in properties {
        values_of(schema, root, &format!("{at}.{name}"), found);
    }
}

#[test]
fn every_chart_value_has_default_and_documentation() {
    let read = |path: &str| std::fs::read_to_string(workspace().join(path)).expect(path);
    let schema = read("controller/deploy/chart/values.schema.json");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let values = read("controller/deploy/chart/values.yaml");
    let values: Value = serde_saphyr::from_str(&values).expect("YAML");
    let documentation = read("docs/in-a-cluster.md");
    let mut paths = Vec::new();
    values_of(&schema, &schema, "", &mut paths);
    paths.retain(|path| path != "global");
    assert!(paths.len() > 40, "{paths:?}");
    for path in paths {
        let pointer = format!("/{}", path.replace('.', "/"));
        assert!(values.pointer(&pointer).is_some(), "no default for {path}");
        let row = match path
            .strip_prefix("images.")
            .and_then(|rest| rest.split_once('.'))
        {
            Some((_, field)) => format!("`images.IMAGE.{field}`"),
            None => format!("`{path}`"),
        };
        assert!(
            documentation.contains(&row),
            "docs/in-a-cluster.md does not describe {row}"
        );
    }
}
