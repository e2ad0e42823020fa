//! Prints the definitions of Sesame's own kinds, made from the Rust types.

use anyhow::Result;
use kube::CustomResourceExt as _;

use sesame_published::GatewayAgent;

/// Returns all definitions as YAML.
pub(super) fn yaml() -> Result<String> {
    let definition = serde_json::to_value(GatewayAgent::crd())?;
    Ok(format!(
        "# Made by `sesame-controller crds`; do not edit.\n{}",
        serde_saphyr::to_string(&definition)?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_deployed_is_what_the_types_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/crds.yaml");
        let deployed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            deployed == yaml().expect("YAML"),
            "{path} is not what the types say: `make crds` writes it anew"
        );
    }
}
