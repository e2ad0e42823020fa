//! Generates the `RouteFilter` CRD from its Rust type.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;
use sesame_kinds::api::{RouteFilterSpec, SESAME_GROUP};

use super::schema;

/// Returns the RouteFilter CRD. A filter's errors appear in the status of the routes that use it.
pub fn route_filter_definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    let mut specification = schema::generate::<RouteFilterSpec>();
    specification["x-kubernetes-validations"] = json!([{
        "rule": "[has(self.directResponse), has(self.urlRewrite), has(self.requestRedirect), has(self.maintenance), has(self.credentialInjection), has(self.grpcJSONTranscoding)].filter(it, it).size() == 1",
        "message": "expected exactly one of directResponse, urlRewrite, requestRedirect, maintenance, credentialInjection and grpcJSONTranscoding",
    }]);
    let fields = &mut specification["properties"];
    fields["urlRewrite"]["x-kubernetes-validations"] = json!([{
        "rule": "has(self.regex) || has(self.hostFromHeader)",
        "message": "expected regex or hostFromHeader",
    }]);
    let redirect = &mut fields["requestRedirect"]["properties"];
    redirect["scheme"]["enum"] = json!(["http", "https"]);
    redirect["statusCode"]["enum"] = json!([301, 302, 303, 307, 308]);
    let schema = json!({
        "type": "object",
        "description": "Filter for HTTPRoutes in the same namespace, whose rules reference it by extensionRef.",
        "required": ["spec"],
        "properties": {"spec": specification},
    });
    let names = json!({"kind": "RouteFilter", "plural": "routefilters", "singular": "routefilter"});
    let columns = json!([
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    let version = (SESAME_GROUP, "v1alpha1");
    let mut definition = schema::definition(version, &names, "Namespaced", &columns, &schema)?;
    for version in &mut definition.spec.versions {
        version.subresources = None;
    }
    Ok(definition)
}
