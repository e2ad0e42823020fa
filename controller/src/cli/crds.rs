//! Prints the definitions of Sesame's own kinds, made from the Rust types.

use anyhow::Result;
use kube::CustomResourceExt as _;

use sesame_published::{
    GatewayAgent, configuration_definition, mesh_ocg_policy_definition, mesh_policy_definition,
};

/// Returns all definitions as YAML.
pub(super) fn yaml() -> Result<String> {
    let mut text = "# Made by `sesame-controller crds`; do not edit.\n".to_owned();
    let definitions = [
        GatewayAgent::crd(),
        configuration_definition()?,
        mesh_policy_definition()?,
        mesh_ocg_policy_definition()?,
    ];
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
    }
}
