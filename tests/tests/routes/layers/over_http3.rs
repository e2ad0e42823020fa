//! The table's requests over HTTP/3, compared with the same requests over TCP.

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::http3::Connection;
use sesame_tests::manifests::yaml;

use super::{
    Ask, LayerObject, OwnListener, Row, RowGroup, SECRETS, SERVICES, answered, groups_of, leaves,
    outcome, rows,
};

/// Time for a QUIC handshake, which has no answer if no listener matches.
const PATIENCE: Duration = Duration::from_secs(5);
/// Attempts if only HTTP/3 is refused.
const ATTEMPTS: usize = 10;

async fn answered_over_http3(agent: &AgentUnderTest, ask: &Ask, authority: &Authority) -> String {
    let (local, trust) = (Ipv4Addr::LOCALHOST.into(), authority.trust());
    let opened = Connection::open(local, agent.address(ask.port), &ask.host, &trust);
    let Ok(Ok(mut connection)) = tokio::time::timeout(PATIENCE, opened).await else {
        return "refused".to_owned();
    };
    let uri = format!("https://{}{}", ask.host, ask.path);
    let mut request = hyper::Request::builder()
        .method(ask.method.as_str())
        .uri(uri);
    for (name, value) in &ask.headers {
        request = request.header(name, value);
    }
    let request = request.body(Bytes::new()).expect("a request");
    outcome(connection.send(request).await)
}

/// Every host of the table gets a certificate, and every request goes to the HTTPS port.
fn secured_rows() -> Vec<Row> {
    let mut rows = rows();
    for row in &mut rows {
        for object in &mut row.objects {
            if let LayerObject::I(claim) | LayerObject::P(claim) = object {
                claim.tls.get_or_insert_with(|| "g".to_owned());
            }
        }
        row.asks.iter_mut().for_each(|ask| ask.port = 443);
        if row.listeners.is_empty() {
            let host = String::new();
            let secret = "g".to_owned();
            row.listeners.push(OwnListener { host, secret });
        }
    }
    // One listener per group accepts all hosts.
    let mut shared = false;
    for row in &mut rows {
        let is_alone = row.alone || row.settings.is_some();
        row.listeners
            .retain(|it| !it.host.is_empty() || is_alone || !std::mem::replace(&mut shared, true));
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_answer_over_http3_as_over_tcp() {
    let authority = Authority::new("layers");
    let leaves = leaves(&authority);
    let secrets = SECRETS.iter().zip(&leaves);
    let secrets: Vec<Value> = secrets.map(|(name, leaf)| leaf.secret(name)).collect();
    let mut services = Vec::new();
    let _backends = start_served(&SERVICES, &mut services).await;
    let (mut forwarded, mut wrong) = (0, Vec::new());
    for RowGroup { rows, mut objects } in groups_of(secured_rows(), &secrets, &json!({"http3": {}}))
    {
        objects.extend(services.iter().cloned());
        let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&objects))]);
        agent.wait_stored().await;
        for (row, ask) in rows
            .iter()
            .flat_map(|(_, row)| row.asks.iter().map(move |it| (row, it)))
        {
            let tcp = answered(&agent, ask, &authority).await;
            let mut quic = answered_over_http3(&agent, ask, &authority).await;
            // On a busy machine, the handshake may take longer.
            for _ in 0..ATTEMPTS {
                if quic != "refused" || tcp == "refused" {
                    break;
                }
                quic = answered_over_http3(&agent, ask, &authority).await;
            }
            forwarded += usize::from(SERVICES.contains(&quic.as_str()));
            // A client that gets 421 asks over TCP.
            if quic != tcp && quic != "421" {
                let case = &row.case;
                wrong.push(format!("{case}: {} {}: {tcp}, {quic}", ask.host, ask.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Most rows compare more than errors.
    assert!(forwarded > 40, "{forwarded}");
}
