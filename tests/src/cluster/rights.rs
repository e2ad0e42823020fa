//! Client permissions, as the API server reports them. Changes to RBAC objects take effect after a
//! short delay.

use serde_json::{Value, json};

use super::{Client, Failure, TestCluster};
use crate::agent::TEST_TIMEOUT;
use crate::wait::{eventually, holds};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

impl Client {
    /// Returns true if the client may read this Secret, even if it does not exist.
    pub async fn may_get_secret(&self, namespace: &str, name: &str) -> Result<bool, Failure> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes":
                {"verb": "get", "resource": "secrets", "namespace": namespace, "name": name}},
        });
        let answer = self.create(REVIEWS, &review).await?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// Waits until RBAC allows this verb, or denies it if `wanted` is false.
    pub async fn wait_allowed(&self, wanted: bool, verb: &str, resource: &str, namespace: &str) {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": namespace}},
        });
        let what = format!("{verb} {resource}: allowed is {wanted}");
        eventually(&what, TEST_TIMEOUT, async || {
            let answer = self.create(REVIEWS, &review).await;
            let answer = answer.map_err(|error| error.to_string())?;
            holds(answer["status"]["allowed"] == wanted, || {
                answer["status"].to_string()
            })
        })
        .await;
    }
}

impl TestCluster {
    /// Creates a Role and binds it to the ServiceAccount.
    pub async fn allow(&self, namespace: &str, account: &str, name: &str, rules: &Value) {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": name, "namespace": namespace},
            "rules": rules,
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        });
        self.apply_all(&[role, binding]).await;
    }
}
