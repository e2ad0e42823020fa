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
    fn what_is_deployed_is_what_the_types_say() {
        for file in ["deploy/crds.yaml", "deploy/chart/crds/sesame.yaml"] {
            let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
            let deployed = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                deployed == yaml().expect("YAML"),
                "{path} differs from the types: run `make crds`"
            );
        }
    }
}
