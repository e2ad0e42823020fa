//! What a client may do, as far as the API server knows: it hears of changed rights a moment later, as everybody else does.

use serde_json::json;

use super::{Client, SOON};
use crate::wait::eventually;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

impl Client {
    /// Waits until this client may do this with a resource of the core group, or may not.
    pub async fn wait_allowed(&self, wanted: bool, verb: &str, resource: &str, namespace: &str) {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": namespace}},
        });
        let what = format!("{verb} {resource}: allowed is {wanted}");
        eventually(&what, SOON, async || {
            let answer = self.create(REVIEWS, &review).await;
            let answer = answer.map_err(|error| error.to_string())?;
            if answer["status"]["allowed"] == wanted {
                Ok(())
            } else {
                Err(answer["status"].to_string())
            }
        })
        .await;
    }
}
