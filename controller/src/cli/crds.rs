//! Prints the CRDs of Sesame's own kinds, generated from the Rust types.

use anyhow::Result;
use kube::CustomResourceExt as _;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use sesame_published::{
    GatewayAgent, access_policy_definition, backend_policy_definition,
    certificate_delegation_definition, configuration_definition, http_proxy_definition,
    mesh_ocg_policy_definition, mesh_policy_definition, route_filter_definition,
    traffic_policy_definition,
};

pub(super) fn yaml() -> Result<String> {
    print(&[
        GatewayAgent::crd(),
        configuration_definition()?,
        mesh_policy_definition()?,
        mesh_ocg_policy_definition()?,
        backend_policy_definition()?,
        traffic_policy_definition()?,
        access_policy_definition()?,
        route_filter_definition()?,
    ])
}

pub(super) fn of_contour() -> Result<String> {
    print(&[
        http_proxy_definition()?,
        certificate_delegation_definition()?,
    ])
}

fn print(definitions: &[CustomResourceDefinition]) -> Result<String> {
    let mut text = "# Made by `sesame-controller crds`; do not edit.\n".to_owned();
    for (index, definition) in definitions.iter().enumerate() {
        if index > 0 {
            text.push_str("---\n");
        }
        let definition = serde_json::to_value(definition)?;
        text.push_str(&serde_saphyr::to_string(&definition)?);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crds_are_current() {
        for file in ["crds.yaml", "chart/crds/sesame.yaml"] {
            sesame_kit::generated::check(&format!("controller/deploy/{file}"), |_| {
                yaml().expect("YAML")
            });
        }
        sesame_kit::generated::check("controller/deploy/contour/crds.yaml", |_| {
            of_contour().expect("YAML")
        });
    }
}
