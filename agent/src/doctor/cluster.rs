//! Checks whether the API server is reachable and grants this host its permissions.

use std::time::Duration;

use super::facts::ClusterFacts;

/// Total time limit for all requests.
const TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) async fn ask(settings: &sesame_sources::cluster::ClusterSettings) -> ClusterFacts {
    let asked = tokio::time::timeout(TIMEOUT, questions(settings)).await;
    asked.unwrap_or_else(|_| ClusterFacts {
        unreachable: Some(format!("no response within {} s", TIMEOUT.as_secs())),
        ..ClusterFacts::default()
    })
}

async fn questions(settings: &sesame_sources::cluster::ClusterSettings) -> ClusterFacts {
    use sesame_sources::cluster::{connect, describe_error};

    let unreachable = |why: String| ClusterFacts {
        unreachable: Some(why),
        ..ClusterFacts::default()
    };
    let client = match connect(settings).await {
        Ok(client) => client,
        Err(why) => return unreachable(why),
    };
    let version = match client.apiserver_version().await {
        Ok(version) => version.git_version,
        Err(error) => return unreachable(describe_error(&error)),
    };
    let mut facts = ClusterFacts {
        version,
        ..ClusterFacts::default()
    };
    // Skip permissions that a role may restrict to named objects, because the API server would
    // report them as denied.
    for (verb, group, resource) in [
        ("list", "", "configmaps"),
        ("watch", "", "configmaps"),
        ("create", "projectsesame.io", "gatewayagents"),
    ] {
        match may(&client, &settings.namespace, verb, group, resource).await {
            Ok(true) => {}
            Ok(false) => facts
                .denied
                .push(format!("{verb} {resource} in {}", settings.namespace)),
            Err(error) => {
                facts.unknown = Some(describe_error(&error));
                break;
            }
        }
    }
    facts
}

async fn may(
    client: &kube::Client,
    namespace: &str,
    verb: &str,
    group: &str,
    resource: &str,
) -> Result<bool, kube::Error> {
    use k8s_openapi::api::authorization::v1::{
        ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
    };
    use kube::api::{Api, PostParams};

    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(namespace.to_owned()),
                verb: Some(verb.to_owned()),
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
