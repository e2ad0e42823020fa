//! Classes of objects, each of which may belong to another installation of Traefik.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::draft::ObjectId;
use super::super::fields::TakenField;
use super::{CLASS, Routers};

const CONTROLLER: &str = "traefik.io/ingress-controller";
pub(super) const ANNOTATION: &str = "kubernetes.io/ingress.class";
const PARENTS: &str = "HTTPRoute parentRefs";

/// Returns the class that an object names.
pub(super) fn class(object: &Value) -> Option<&str> {
    let annotation = object["metadata"]["annotations"][ANNOTATION].as_str();
    annotation.or_else(|| object["spec"]["ingressClassName"].as_str())
}

/// Returns the controller of a class in the input.
pub(super) fn controller<'i>(
    inputs: &BTreeMap<ObjectId, &'i Value>,
    name: &str,
) -> Option<&'i Value> {
    let id = ObjectId::new("IngressClass", "", name);
    inputs.get(&id).map(|it| &it["spec"]["controller"])
}

pub(super) fn is_own(inputs: &BTreeMap<ObjectId, &Value>, name: &str) -> bool {
    controller(inputs, name).map_or(name == CLASS, |it| it == CONTROLLER)
}

/// Returns the classes of Traefik that objects name.
pub(super) fn used(inputs: &BTreeMap<ObjectId, &Value>) -> BTreeSet<String> {
    let objects = inputs
        .iter()
        .filter(|(id, _)| id.kind.starts_with("Ingress"));
    let names = objects.filter_map(|(_, object)| class(object));
    let own = names.filter(|it| is_own(inputs, it));
    own.map(str::to_owned).collect()
}

/// Records a verdict on the field that names a class. There is only one Gateway, so a second class,
/// which may be internal, is refused.
pub(super) fn close(routers: &Routers, field: TakenField) {
    let name = field.as_str().to_owned();
    let is_empty = field.value() == "";
    if !is_empty && !is_own(&routers.inputs, &name) {
        let reason = format!("class {name:?} is not known to be Traefik's");
        field.refuse(
            &reason,
            "add its IngressClass to the input, or remove the object",
        );
    } else if name != CLASS && !is_empty && routers.classes.len() > 1 {
        let reason = "objects of another class also become routes of the only Gateway";
        field.refuse(reason, "convert the objects of each class separately");
    } else {
        field.differ(PARENTS, "the Gateway replaces the class");
    }
}
