//! TLS parameters reach Envoy, and listeners with invalid or insecure parameters are left out.

use sesame_proto::schema::{TlsTermination, tls_termination::Version};

use super::everything::{everything, parameters};
use super::parts::options;
use crate::{dump, render};

#[test]
fn only_listener_with_bad_parameter_is_omitted() {
    let bad: [fn(&mut TlsTermination); 6] = [
        |tls| tls.min_version = Version::Tls13.into(),
        |tls| tls.min_version = 99,
        |tls| tls.cipher_suites.push("AES128-SHA".to_owned()),
        |tls| tls.cipher_suites.push("ALL:!aNULL".to_owned()),
        |tls| tls.key_exchange_groups.push("P-224".to_owned()),
        |tls| tls.alpn.push("a b".to_owned()),
    ];
    for (number, change) in bad.into_iter().enumerate() {
        let (mut snapshot, keys) = everything();
        let listener = &mut snapshot.ports[1].listeners[3];
        assert_eq!(listener.tls, Some(parameters()));
        let tls = listener.tls.as_mut().unwrap();
        tls.max_version = Version::Tls12.into();
        change(tls);
        let name = listener.name.clone();
        let rendered = render(&snapshot, &keys, &options());
        let objects: Vec<&str> = rendered
            .problems
            .iter()
            .map(|problem| problem.object.as_str())
            .collect();
        assert_eq!(objects, [name], "{number}");
    }
}

#[test]
fn every_parameter_reaches_envoy() {
    let (snapshot, keys) = everything();
    let rendered = render(&snapshot, &keys, &options());
    let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
    let text = printed["listeners"].to_string();
    for part in [
        r#""alpn_protocols":["http/1.1","h2"]"#,
        r#""tls_maximum_protocol_version":"TLSv1_3""#,
        r#""tls_minimum_protocol_version":"TLSv1_2""#,
        r#""cipher_suites":["ECDHE-ECDSA-AES128-GCM-SHA256","#,
        r#""ecdh_curves":["X25519MLKEM768","X25519","P-256","P-384"]"#,
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let text = printed["clusters"].to_string();
    assert!(text.contains(r#""ecdh_curves":["P-384"]"#), "{text}");
}
