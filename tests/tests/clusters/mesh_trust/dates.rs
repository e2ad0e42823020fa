//! Trust starts and ends with the certificates' validity periods, even if no object changes.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Value, json};
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::cluster::TestCluster;
use sesame_tests::controller::{ControllerUnderTest, condition};

use super::policies::{CLIENT, OCG_POLICY, POLICY, nowhere};
use super::{
    Authorities, GATEWAY, OCG_BUNDLE, TRUSTED, bundle, cluster_with_mesh, objects, ocg_policy,
    wait_condition,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const BAD: (&str, &str) = ("False", "CertificateNotTrusted");
const GOOD: (&str, &str) = ("True", "CertificateTrusted");

async fn show(cluster: &TestCluster, leaf: &Leaf) {
    let change = json!({"data": leaf.secret("client")["data"]});
    cluster.merge(CLIENT, &change).await;
}

async fn wait_conditions(cluster: &TestCluster, expected: (&str, &str), words: &str) {
    for path in [GATEWAY, POLICY, OCG_POLICY] {
        wait_condition(cluster, path, TRUSTED, expected, words).await;
    }
}

fn second(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.expect("a current time").as_secs().cast_signed();
    let time = Timestamp::from_second(seconds);
    time.expect("a current time").to_string()
}

/// Returns true if the certificate was reported as trusted before it expired.
async fn seen_to_lapse(cluster: &TestCluster, all: &Authorities, life: Duration) -> bool {
    let now = SystemTime::now();
    let end = now + life;
    show(cluster, &all.gateway.issue_valid(&["g"], now - DAY, end)).await;
    let lapsed = format!("(since {})", second(end));
    let judged = |gateway: &Value| {
        let found = condition(&gateway["status"]["conditions"], TRUSTED);
        let message = found["message"].as_str().unwrap_or_default();
        found["status"] == "True" || message.contains(&lapsed)
    };
    let gateway = cluster
        .until("the trust is reported", GATEWAY, judged)
        .await;
    let found = condition(&gateway["status"]["conditions"], TRUSTED);
    let was_trusted = found["status"] == "True";
    wait_conditions(cluster, BAD, &lapsed).await;
    was_trusted
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_certificate_loses_trust_without_object_change() {
    let all = Authorities::new();
    let cluster = cluster_with_mesh().await;
    cluster.apply_all(&objects(&all, nowhere())).await;
    cluster
        .apply_all(&[bundle("ocg-trust-bundle", &all.gateway), ocg_policy(false)])
        .await;
    let _controller = ControllerUnderTest::start(&cluster, &["--configuration", "sesame"]).await;
    wait_conditions(&cluster, GOOD, "").await;

    let now = SystemTime::now();
    let (before, after) = (now - DAY, now + DAY);
    let expired = all.gateway.issue_valid(&["g"], now - 2 * DAY, before);
    show(&cluster, &expired).await;
    let message = format!("(since {})", second(before));
    wait_conditions(&cluster, BAD, &message).await;
    let meshed = ("True", "Meshed");
    wait_condition(&cluster, GATEWAY, "projectsesame.io/Meshed", meshed, "").await;
    let early = all.gateway.issue_valid(&["g"], after, now + 2 * DAY);
    show(&cluster, &early).await;
    wait_conditions(&cluster, BAD, &format!("(before {})", second(after))).await;
    // An expired authority must not be trusted, even if the certificate is still valid.
    let lapsed = Authority::valid("lapsed", now - 3 * DAY, before);
    let trusted = json!({"data": bundle("", &lapsed)["data"]});
    cluster.merge(OCG_BUNDLE, &trusted).await;
    let foreign = "is not signed by a CA certificate of";
    wait_condition(&cluster, GATEWAY, TRUSTED, BAD, foreign).await;
    show(&cluster, &lapsed.issue(&["g"])).await;
    wait_conditions(&cluster, BAD, &message).await;

    // On a busy machine, the check may come too late, so retry with a longer lifetime.
    let trusted = json!({"data": bundle("", &all.gateway)["data"]});
    cluster.merge(OCG_BUNDLE, &trusted).await;
    for seconds in [8, 30, 120] {
        if seen_to_lapse(&cluster, &all, Duration::from_secs(seconds)).await {
            return;
        }
    }
    panic!("the certificate was never reported as trusted");
}
