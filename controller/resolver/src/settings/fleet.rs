//! Validates `spec.fleet`. Rejects values that the API server would reject in fleet objects.

use std::collections::BTreeMap;

use sesame_proto::dns_name::{is_dns_subdomain, is_label_value};

use crate::syntax::{limits, names};
use sesame_kinds::api::{
    ContainerResources, FleetImages, FleetResources, FleetSettings, FleetWorkload, OpenEnum,
    Quantity, TaintEffect, Toleration, TolerationOperator,
};

const MAX_ENTRIES: usize = 32;
const MAX_IMAGE: usize = 512;
const MAX_REPORTED: usize = 64;
const DRAIN_SECONDS: std::ops::RangeInclusive<i32> = 1..=3600;
const TRUSTED_HOPS: std::ops::RangeInclusive<i32> = 0..=16;
const REPLICAS: std::ops::RangeInclusive<i32> = 1..=1000;

/// Returns errors with field paths relative to `spec.fleet`.
pub(super) fn faults(fleet: &FleetSettings) -> Vec<String> {
    let FleetSettings {
        management,
        gateways,
        workload,
        replicas,
        images,
        image_pull_policy,
        node_selector,
        tolerations,
        resources,
        drain_seconds,
        trusted_hops,
        metrics_port,
    } = fleet;
    let mut found = Vec::new();
    found.extend(word("management", management.as_ref()));
    found.extend(word("gateways", gateways.as_ref()));
    found.extend(word("workload", workload.as_ref()));
    found.extend(replicas.and_then(|replicas| replicas_fault(replicas, workload.as_ref())));
    found.extend(word("imagePullPolicy", image_pull_policy.as_ref()));
    let FleetImages { agent, envoy } = &images.clone().unwrap_or_default();
    for (field, image) in [("agent", agent), ("envoy", envoy)] {
        if let Some(image) = image.as_ref().filter(|image| !is_image(image)) {
            let image = quoted(image);
            found.push(format!("images.{field}: {image}: expected the name of an image, such as registry.example.com/sesame-agent:0.1.0"));
        }
    }
    if let Some(node_selector) = node_selector {
        labels(&mut found, "nodeSelector", node_selector);
    }
    let tolerations = tolerations.as_deref().unwrap_or_default();
    match limits::entries("tolerations", tolerations.len(), 0..=MAX_ENTRIES) {
        Ok(()) => {
            for (i, toleration) in tolerations.iter().enumerate() {
                let why = toleration_fault(toleration).into_iter();
                found.extend(why.map(|why| format!("tolerations[{i}].{why}")));
            }
        }
        Err(why) => found.push(why),
    }
    let FleetResources { agent, envoy } = &resources.clone().unwrap_or_default();
    for (container, resources) in [("agent", agent), ("envoy", envoy)] {
        if let Some(resources) = resources {
            self::resources(&mut found, container, resources);
        }
    }
    if let Some(seconds) = drain_seconds.filter(|seconds| !DRAIN_SECONDS.contains(seconds)) {
        found.push(format!("drainSeconds: {seconds}: expected 1 to 3600"));
    }
    if let Some(hops) = trusted_hops.filter(|hops| !TRUSTED_HOPS.contains(hops)) {
        found.push(format!("trustedHops: {hops}: expected 0 to 16"));
    }
    if let Some(port) = metrics_port.filter(|port| names::port(*port).is_none()) {
        found.push(format!("metricsPort: {port}: expected 1 to 65535"));
    }
    found
}

/// `workload` is `None` if another layer may set it.
fn replicas_fault(replicas: i32, workload: Option<&FleetWorkload>) -> Option<String> {
    if !REPLICAS.contains(&replicas) {
        return Some(format!("replicas: {replicas}: expected 1 to 1000"));
    }
    (workload == Some(&FleetWorkload::DaemonSet))
        .then(|| "replicas: allowed only with workload Deployment".to_owned())
}

fn word(field: &str, value: Option<&impl OpenEnum>) -> Option<String> {
    let (value, words) = value?.unknown()?;
    let (value, words) = (quoted(value), words.join(", "));
    Some(format!("{field}: {value} is not one of {words}"))
}

fn quoted(text: &str) -> String {
    let text: String = text.chars().take(MAX_REPORTED).collect();
    format!("{text:?}")
}

fn is_image(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@-".contains(&byte);
    text.len() <= MAX_IMAGE
        && text.bytes().all(allowed)
        && text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric())
}

/// Example: `name` or `example.com/name`.
fn is_qualified(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    prefix.is_none_or(is_dns_subdomain) && is_label_value(name)
}

fn labels(found: &mut Vec<String>, field: &str, labels: &BTreeMap<String, String>) {
    if let Err(why) = limits::entries(field, labels.len(), 0..=MAX_ENTRIES) {
        found.push(why);
        return;
    }
    for (key, value) in labels {
        let key_told = quoted(key);
        if !is_qualified(key) {
            found.push(format!("{field}: {key_told} is not a valid label key"));
        } else if !value.is_empty() && !is_label_value(value) {
            let value = quoted(value);
            found.push(format!(
                "{field}[{key}]: {value} is not a valid label value"
            ));
        }
    }
}

/// Returns the first error that the API server would report.
fn toleration_fault(toleration: &Toleration) -> Option<String> {
    let Toleration {
        key,
        operator,
        value,
        effect,
        toleration_seconds,
    } = toleration;
    let operator = operator.as_ref().unwrap_or(&TolerationOperator::Equal);
    let key = key.as_deref().unwrap_or_default();
    let value = value.as_deref().unwrap_or_default();
    let unknown = word("operator", Some(operator)).or_else(|| word("effect", effect.as_ref()));
    if unknown.is_some() {
        return unknown;
    }
    if key.is_empty() && *operator != TolerationOperator::Exists {
        return Some("key: required unless operator is Exists".to_owned());
    }
    if !key.is_empty() && !is_qualified(key) {
        return Some(format!("key: {} is not a valid taint key", quoted(key)));
    }
    if *operator == TolerationOperator::Exists && !value.is_empty() {
        return Some("value: must be empty with operator Exists".to_owned());
    }
    if !value.is_empty() && !is_label_value(value) {
        return Some(format!(
            "value: {} is not a valid taint value",
            quoted(value)
        ));
    }
    (toleration_seconds.is_some() && *effect != Some(TaintEffect::NoExecute))
        .then(|| "tolerationSeconds: allowed only with effect NoExecute".to_owned())
}

fn resources(found: &mut Vec<String>, container: &str, resources: &ContainerResources) {
    let ContainerResources { limits, requests } = resources;
    for (field, all) in [("limits", limits), ("requests", requests)] {
        let field = format!("resources.{container}.{field}");
        if let Err(why) = limits::entries(&field, all.len(), 0..=MAX_ENTRIES) {
            found.push(why);
            return;
        }
        for (name, quantity) in all {
            let Quantity(text) = quantity;
            if !is_qualified(name) {
                let name = quoted(name);
                found.push(format!("{field}: {name} is not a valid resource name"));
            } else if quantity.billionths().is_none_or(|it| it < 0) {
                let text = quoted(text);
                found.push(format!(
                    "{field}[{name}]: {text} is not a quantity; expected a value such as 500m or 512Mi"
                ));
            }
        }
    }
    for (name, request) in requests {
        let limit = limits.get(name);
        let over = limit.is_some_and(|limit| request.billionths() > limit.billionths());
        if let Some(Quantity(limit)) = limit.filter(|_| over) {
            let (request, limit) = (quoted(&request.0), quoted(limit));
            found.push(format!(
                "resources.{container}.requests[{name}]: {request} is more than the limit {limit}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_names_its_field_and_value() {
        let quantity = |text: &str| Quantity(text.to_owned());
        let text = |text: &str| Some(text.to_owned());
        let bad = FleetSettings {
            management: Some("managed".into()),
            gateways: Some("All".into()),
            workload: Some("StatefulSet".into()),
            replicas: Some(0),
            images: Some(FleetImages {
                agent: text("-x"),
                envoy: text("sesame envoy"),
            }),
            image_pull_policy: Some("Sometimes".into()),
            node_selector: Some(
                [
                    ("a b".to_owned(), String::new()),
                    ("edge".to_owned(), "-".to_owned()),
                ]
                .into(),
            ),
            tolerations: Some(vec![
                Toleration::default(),
                Toleration {
                    operator: Some(TolerationOperator::Exists),
                    value: text("x"),
                    ..Toleration::default()
                },
                Toleration {
                    key: text("edge"),
                    toleration_seconds: Some(1),
                    ..Toleration::default()
                },
            ]),
            resources: Some(FleetResources {
                agent: Some(ContainerResources {
                    limits: [("cpu".to_owned(), quantity("1 core"))].into(),
                    ..ContainerResources::default()
                }),
                envoy: Some(ContainerResources {
                    limits: [("memory".to_owned(), quantity("1Gi"))].into(),
                    requests: [("memory".to_owned(), quantity("1025Mi"))].into(),
                }),
            }),
            drain_seconds: Some(0),
            trusted_hops: Some(17),
            metrics_port: Some(70_000),
        };
        let found = faults(&bad).join("\n");
        for words in [
            "management: \"managed\" is not one of Managed, Unmanaged, External",
            "gateways: \"All\" is not one of Isolated, Merged, Single",
            "workload: \"StatefulSet\" is not one of DaemonSet, Deployment",
            "replicas: 0: expected 1 to 1000",
            "images.agent: \"-x\"",
            "images.envoy: \"sesame envoy\"",
            "imagePullPolicy: \"Sometimes\"",
            "nodeSelector: \"a b\" is not a valid label key",
            "nodeSelector[edge]: \"-\"",
            "tolerations[0].key: required unless operator is Exists",
            "tolerations[1].value: must be empty",
            "tolerations[2].tolerationSeconds",
            "resources.agent.limits[cpu]: \"1 core\" is not a quantity",
            "resources.envoy.requests[memory]: \"1025Mi\" is more than the limit \"1Gi\"",
            "drainSeconds: 0: expected 1 to 3600",
            "trustedHops: 17: expected 0 to 16",
            "metricsPort: 70000: expected 1 to 65535",
        ] {
            assert!(found.contains(words), "{words}: {found}");
        }
        assert_eq!(faults(&FleetSettings::default()), Vec::<String>::new());
        let on_nodes = FleetSettings {
            workload: Some(FleetWorkload::DaemonSet),
            replicas: Some(3),
            ..FleetSettings::default()
        };
        let expected = "replicas: allowed only with workload Deployment";
        assert_eq!(faults(&on_nodes), [expected]);
    }
}
