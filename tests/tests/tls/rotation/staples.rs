//! Envoy sends a valid OCSP staple with its certificate. An invalid staple must not affect the
//! certificate.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, listener_condition};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Leaf;
use sesame_tests::handshakes::{Agreed, Handshake};
use sesame_tests::manifests::yaml;
use sesame_tests::ocsp::{OcspStatus, response};
use sesame_tests::wait::{eventually, holds};

use super::site::{Site, admin, unmoved};

fn after(seconds: i64) -> Timestamp {
    Timestamp::now() + SignedDuration::from_secs(seconds)
}

impl Site {
    fn staple(&self, leaf: &Leaf, end: Timestamp) -> Vec<u8> {
        response(&self.authority, leaf, OcspStatus::Good, end)
    }

    /// Connects with TLS 1.2 and with TLS 1.3.
    async fn agreed(&self, agent: &AgentUnderTest) -> Result<Vec<Agreed>, String> {
        let (host, trust) = (Self::host(0), self.authority.trust());
        let client = Handshake::with(agent.address(443), &host, &trust);
        let mut agreed = Vec::new();
        for client in [client.clone().tls12(), client] {
            let one = client.shake().await.map_err(|error| format!("{error:#}"))?;
            agreed.push(one);
        }
        Ok(agreed)
    }

    /// If `staple` is empty, Envoy must send none.
    async fn wait_stapled(&self, agent: &AgentUnderTest, what: &str, leaf: &Leaf, staple: &[u8]) {
        eventually(what, TEST_TIMEOUT, async || {
            for agreed in self.agreed(agent).await? {
                let same = agreed.certificate == leaf.der && agreed.staple == staple;
                holds(same, || {
                    format!("{:?} with {} bytes", agreed.version, agreed.staple.len())
                })?;
            }
            Ok(())
        })
        .await;
    }
}

fn write(agent: &AgentUnderTest, leaf: &Leaf, staple: &[u8]) {
    let secret = leaf.stapled_secret("pair-0", staple);
    agent.write("pair-0.yaml", &yaml(&[secret]));
}

async fn wait_refs(agent: &AgentUnderTest, status: &str, words: &str) {
    let good = |answer: &Value| {
        let refs = listener_condition(answer, "l0", "ResolvedRefs");
        let message = refs["message"].as_str().unwrap_or_default();
        refs["status"] == status && message.contains(words)
    };
    agent.wait_status(words, good).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn staple_is_served_replaced_and_dropped_when_expired() {
    let backend = Backend::start("app").await;
    let site = Site::with_names(1);
    let mut agent = site
        .start(Setup::with_ports(&[443]), backend.address(), |it| it)
        .await;
    let leaf = site.issue(0);
    let first = site.staple(&leaf, after(3600));
    write(&agent, &leaf, &first);
    site.wait_stapled(&agent, "the first", &leaf, &first).await;
    wait_refs(&agent, "True", "all references are resolved").await;

    let before = unmoved(&admin(&agent).await).await;
    let second = site.staple(&leaf, after(7200));
    write(&agent, &leaf, &second);
    site.wait_stapled(&agent, "the second", &leaf, &second)
        .await;
    assert_eq!(unmoved(&admin(&agent).await).await, before);

    // Ten seconds are long enough for both handshakes.
    let short = site.staple(&leaf, after(10));
    write(&agent, &leaf, &short);
    site.wait_stapled(&agent, "the short-lived staple", &leaf, &short)
        .await;
    site.wait_stapled(&agent, "the certificate alone", &leaf, &[])
        .await;
    let warns = |status: &Value| {
        let warnings = status["warnings"].to_string();
        status["healthy"] == true
            && warnings.contains("the OCSP staple of Secret/default/pair-0 expired")
    };
    agent.wait_status("the expiry is reported", warns).await;
    agent.wait_stored().await;

    // An expired staple must not prevent startup either.
    agent.kill9();
    agent.kill9_envoy();
    agent.restart();
    site.wait_stapled(&agent, "the certificate after a restart", &leaf, &[])
        .await;
    agent
        .wait_status("the expiry is reported again", warns)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_staple_is_omitted_and_reported() {
    let backend = Backend::start("app").await;
    let site = Site::with_names(1);
    let agent = site
        .start(Setup::with_ports(&[443]), backend.address(), |it| it)
        .await;
    let (leaf, other) = (site.issue(0), site.issue(0));
    let good = site.staple(&leaf, after(3600));
    let revoked = response(&site.authority, &leaf, OcspStatus::Revoked, after(3600));
    let cases: [(&str, Vec<u8>); 5] = [
        (
            "is not an OCSP response in DER",
            good[..good.len() - 1].to_vec(),
        ),
        (
            "is text, such as PEM",
            b"-----BEGIN OCSP RESPONSE-----".to_vec(),
        ),
        ("reports certificate status revoked", revoked),
        (
            "does not match the leaf certificate",
            site.staple(&other, after(3600)),
        ),
        ("is too large: 20000 bytes", vec![0xff; 20_000]),
    ];
    for (words, staple) in cases {
        write(&agent, &leaf, &good);
        site.wait_stapled(&agent, "the good staple", &leaf, &good)
            .await;
        write(&agent, &leaf, &staple);
        site.wait_stapled(&agent, words, &leaf, &[]).await;
        wait_refs(&agent, "True", words).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn must_staple_certificate_is_accepted_only_with_staple() {
    let backend = Backend::start("app").await;
    let site = Site::with_names(1);
    let mut agent = site
        .start(Setup::with_ports(&[443]), backend.address(), |it| it)
        .await;
    let shown = site.shown(&agent, 0).await.expect("a certificate");
    let leaf = site.authority.issue_must_staple(&[&Site::host(0)]);
    Site::write(&agent, 0, &leaf);
    wait_refs(&agent, "False", "the certificate requires an OCSP staple").await;
    let still = site.shown(&agent, 0).await.expect("a certificate");
    assert!(still == shown, "the last good certificate");

    let staple = site.staple(&leaf, after(3600));
    write(&agent, &leaf, &staple);
    site.wait_stapled(&agent, "the new staple is presented", &leaf, &staple)
        .await;
    Site::write(&agent, 0, &leaf);
    wait_refs(&agent, "False", "the certificate requires an OCSP staple").await;
    site.wait_stapled(&agent, "the last good staple", &leaf, &staple)
        .await;
    agent.wait_stored().await;
    agent.kill9();
    agent.kill9_envoy();
    agent.restart();
    site.wait_stapled(&agent, "the same staple after a restart", &leaf, &staple)
        .await;
}
