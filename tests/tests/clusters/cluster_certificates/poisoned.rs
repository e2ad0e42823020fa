//! Certificates and keys of every kind, from a Secret to Envoy's handshake. If a pair is invalid,
//! the previous pair stays in use.

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::checks::Checks;
use sesame_tests::handshakes::Handshake;
use sesame_tests::manifests::{edge, https_listener};

use super::Path;

const SECRET: &str = "/api/v1/namespaces/default/secrets/pair";

enum Expected {
    Shown,
    /// Text in the condition's message.
    Refused(&'static str),
}

use Expected::{Refused, Shown};

struct Form {
    what: &'static str,
    certificate: String,
    key: String,
    leaf: Leaf,
    fate: Expected,
}

fn converted(key_pem: &str, arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let [before, after] = ["before", "after"].map(|name| directory.path().join(name));
    std::fs::write(&before, key_pem).expect("a file");
    let made = Command::new("openssl")
        .args(arguments)
        .arg("-in")
        .arg(&before)
        .arg("-out")
        .arg(&after)
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{made:?}");
    std::fs::read_to_string(after).expect("a key")
}

fn rsa_key() -> String {
    let arguments = [
        "genpkey",
        "-algorithm",
        "RSA",
        "-pkeyopt",
        "rsa_keygen_bits:2048",
    ];
    let made = Command::new("openssl").args(arguments).output();
    let made = made.expect("openssl");
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).expect("PEM")
}

fn forms(authority: &Authority) -> Vec<Form> {
    let form = |what, fate, change: &dyn Fn(&mut Form)| {
        let leaf = authority.issue(&["a.test"]);
        let (certificate, key) = (leaf.certificate_pem.clone(), leaf.key_pem.clone());
        let mut form = Form {
            what,
            certificate,
            key,
            leaf,
            fate,
        };
        change(&mut form);
        form
    };
    let half = |text: &str| text[..text.len() / 2].to_owned();
    let crlf = |text: &str| text.replace('\n', "\r\n");
    vec![
        form("PKCS#8", Shown, &|_| {}),
        form(
            "another certificate's key",
            Refused("tls.key does not match any"),
            &|it| {
                it.key = authority.issue(&["a.test"]).key_pem;
            },
        ),
        form("SEC1", Shown, &|it| it.key = converted(&it.key, &["ec"])),
        form(
            "a truncated certificate",
            Refused("tls.crt is truncated"),
            &|it| {
                it.certificate = half(&it.certificate);
            },
        ),
        form("PKCS#1", Shown, &|it| {
            let key = rsa_key();
            it.leaf = authority.issue_for_key(&["a.test"], &key);
            it.certificate.clone_from(&it.leaf.certificate_pem);
            it.key = converted(&key, &["rsa", "-traditional"]);
        }),
        form("a truncated key", Refused("tls.key is truncated"), &|it| {
            it.key = half(&it.key);
        }),
        form("CRLF", Shown, &|it| {
            (it.certificate, it.key) = (crlf(&it.certificate), crlf(&it.key));
        }),
        form(
            "an encrypted key",
            Refused("tls.key is encrypted with a password"),
            &|it| {
                it.key = converted(&it.key, &["pkey", "-aes256", "-passout", "pass:x"]);
            },
        ),
        form("a byte order mark", Shown, &|it| {
            it.certificate.insert(0, '\u{feff}');
        }),
        form(
            "a chain of 1,000 certificates",
            Refused("bytes, maximum 524288"),
            &|it| {
                it.certificate.push_str(&authority.pem().repeat(1000));
            },
        ),
        form("a chain of 31 certificates", Shown, &|it| {
            it.certificate.push_str(&authority.pem().repeat(30));
        }),
        form(
            "an empty key",
            Refused("Secret default/pair has no tls.key"),
            &|it| {
                it.key.clear();
            },
        ),
        form(
            "an empty certificate",
            Refused("Secret default/pair has no tls.crt"),
            &|it| {
                it.certificate.clear();
            },
        ),
        form("a valid pair", Shown, &|_| {}),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_pair_keeps_previous_certificate_and_spares_others() {
    let path = Path::start(&[443]).await;
    let authority = Authority::new("servers");
    let beside = authority.issue(&["b.test"]);
    let mut last = authority.issue(&["a.test"]);
    let mut all = edge(&[
        https_listener("https", 443, "a.test", "pair"),
        https_listener("beside", 443, "b.test", "beside"),
    ]);
    all.extend([last.secret("pair"), beside.secret("beside")]);
    path.cluster.apply_all(&all).await;
    path.wait_shown(&authority, "a.test", &last).await;
    path.wait_shown(&authority, "b.test", &beside).await;
    let mut checks = Checks::default();
    for form in forms(&authority) {
        let [certificate, key] = [&form.certificate, &form.key].map(|text| STANDARD.encode(text));
        let change = json!({"data": {"tls.crt": certificate, "tls.key": key}});
        path.cluster.merge(SECRET, &change).await;
        match form.fate {
            Shown => {
                path.wait_shown(&authority, "a.test", &form.leaf).await;
                last = form.leaf;
                path.wait_condition("ResolvedRefs", "True", "ResolvedRefs", "")
                    .await;
            }
            Refused(words) => {
                let reason = "InvalidCertificateRef";
                path.wait_condition("ResolvedRefs", "False", reason, words)
                    .await;
            }
        }
        for (host, expected) in [("a.test", &last), ("b.test", &beside)] {
            let client = Handshake::with(path.agent.address(443), host, &authority.trust());
            let shown = client.shake().await.ok().map(|agreed| agreed.certificate);
            let right = shown.as_ref() == Some(&expected.der);
            checks.that(
                right,
                format!("{}: wrong certificate for {host}", form.what),
            );
        }
    }
    // The API server rejects a TLS Secret without `tls.key`.
    let without = json!({"data": {"tls.key": Value::Null}});
    let refused = path.cluster.admin().merge(SECRET, &without).await;
    checks.that(refused.is_err(), "a Secret without tls.key".to_owned());
    checks.finish();
}
