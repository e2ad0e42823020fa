//! Reports the certificates and trust bundles that Envoy uses. A report must never contain any part
//! of a private key.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::certificate_facts::CertificateFacts;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{Backend, BackendTls, Listener, Snapshot, TlsTermination, TrustBundle};
use tokio::sync::watch;

use super::engine::SourceState;
use super::inspect::InspectedGateway;
use super::observed::{AllObserved, Observed, newest};
use super::target::RetainedCertificate;
use sesame_envoy::admin::{Admin, serial};

/// HTTP path at which the agent lists its [`CertificateReport`]s.
pub const CERTIFICATES_PATH: &str = "/certificates";
const TIMEOUT: Duration = Duration::from_secs(3);

/// Certificate that a Gateway's Envoy uses. Contains no part of a private key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateReport {
    /// `namespace/name`.
    pub gateway: String,
    /// `Secret/namespace/name`, or ConfigMaps joined by `+`.
    pub object: String,
    /// Set if the object comes from manifests or local files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Position in the presented chain, or use as an authority.
    pub role: CertificateRole,
    /// DNS names, addresses and URIs.
    pub names: Vec<String>,
    /// Distinguished name of the subject, truncated and without control characters.
    pub subject: String,
    /// Distinguished name of the issuer, truncated and without control characters.
    pub issuer: String,
    /// Lower-case hexadecimal without leading zeros.
    pub serial: String,
    /// Kind and size of the key.
    pub key: String,
    /// Start of the validity period.
    pub not_before: Timestamp,
    /// End of the validity period.
    pub not_after: Timestamp,
    /// When trust in a CA certificate ends, if a rotation removed it from its bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_until: Option<Timestamp>,
    /// Listeners and backends, by their names in the snapshot.
    pub used_by: Vec<String>,
    /// `None` if unknown, or if Envoy does not list certificates with this role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<bool>,
}

/// How Envoy uses a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CertificateRole {
    /// The certificate is presented to clients or backends.
    Leaf,
    /// Certificate after the leaf in a presented chain.
    Chain,
    /// Verifies certificates that clients or backends present.
    Authority,
}

#[derive(Clone)]
pub(super) struct CertificatesSource {
    known: watch::Receiver<SourceState>,
    observed: watch::Receiver<AllObserved>,
}

impl CertificatesSource {
    pub(super) fn new(
        known: &watch::Receiver<SourceState>,
        observed: &watch::Receiver<AllObserved>,
    ) -> Self {
        Self {
            known: known.clone(),
            observed: observed.clone(),
        }
    }

    /// Returns the certificates in order of expiry.
    pub(super) async fn report(&self) -> Vec<CertificateReport> {
        let observed: BTreeMap<NamespacedName, Observed> = newest(&self.observed);
        // Query all Envoy processes concurrently, so that unresponsive ones cost only one timeout.
        let served = futures::future::join_all(observed.values().map(serials)).await;
        self.list(&observed, served)
    }

    /// Does not query Envoy.
    pub(super) fn list_without_query(&self) -> Vec<CertificateReport> {
        let observed = newest(&self.observed);
        let served = vec![None; observed.len()];
        self.list(&observed, served)
    }

    fn list(
        &self,
        observed: &BTreeMap<NamespacedName, Observed>,
        all_served: Vec<Option<Vec<String>>>,
    ) -> Vec<CertificateReport> {
        let files = {
            let known = self.known.borrow();
            let mut files = BTreeMap::clone(&known.key_files);
            files.extend(known.local.files.clone());
            files
        };
        let mut found = Vec::new();
        for ((gateway, observed), served) in observed.iter().zip(all_served) {
            let Some(applied) = &observed.applied else {
                continue;
            };
            let inputs = ReportInputs {
                gateway: gateway.to_string(),
                snapshot: &applied.encoded.without_route_tables(),
                keys: applied.encoded.keys(),
                retained: &applied.retained,
                served: served.as_deref(),
                files: &files,
            };
            found.extend(gateway_certificates(&inputs));
        }
        sorted(found)
    }
}

/// Returns `None` if Envoy is down or does not respond.
async fn serials(observed: &Observed) -> Option<Vec<String>> {
    if !observed.live {
        return None;
    }
    let admin = Admin::new(&observed.envoy.admin).with_timeout(TIMEOUT);
    admin.certificate_serials().await.ok()
}

/// Works without a running agent.
pub fn of_accepted(accepted: &[InspectedGateway]) -> Vec<CertificateReport> {
    let reports = accepted.iter().flat_map(|it| {
        gateway_certificates(&ReportInputs {
            gateway: it.gateway.to_string(),
            snapshot: &it.resolved.snapshot,
            keys: &it.resolved.keys,
            retained: &[],
            served: None,
            files: &BTreeMap::new(),
        })
    });
    sorted(reports.collect())
}

fn sorted(mut found: Vec<CertificateReport>) -> Vec<CertificateReport> {
    found.sort_by(|one, other| {
        let key =
            |it: &CertificateReport| (it.not_after, it.gateway.clone(), it.object.clone(), it.role);
        key(one).cmp(&key(other))
    });
    found
}

struct ReportInputs<'a> {
    gateway: String,
    snapshot: &'a Snapshot,
    keys: &'a [KeyPair],
    retained: &'a [RetainedCertificate],
    served: Option<&'a [String]>,
    /// By `Kind/namespace/name`.
    files: &'a BTreeMap<String, String>,
}

fn gateway_certificates(inputs: &ReportInputs<'_>) -> Vec<CertificateReport> {
    let used_by = uses(inputs.snapshot);
    let mut found = Vec::new();
    for KeyPair {
        name,
        certificate_chain,
        private_key: _,
        ocsp_staple: _,
    } in inputs.keys
    {
        let chain = CertificateFacts::from_pem(certificate_chain);
        for (place, facts) in chain.into_iter().enumerate() {
            let role = match place {
                0 => CertificateRole::Leaf,
                _ => CertificateRole::Chain,
            };
            found.extend(one(inputs, &used_by, name, role, facts));
        }
    }
    let role = CertificateRole::Authority;
    for TrustBundle { name, pem, .. } in &inputs.snapshot.trust_bundles {
        for facts in CertificateFacts::from_pem(pem.as_bytes()) {
            found.extend(one(inputs, &used_by, name, role, facts));
        }
    }
    for RetainedCertificate { bundle, pem, until } in inputs.retained {
        for facts in CertificateFacts::from_pem(pem.as_bytes()) {
            let report = one(inputs, &used_by, bundle, role, facts);
            found.extend(report.map(|report| CertificateReport {
                trusted_until: Some(*until),
                ..report
            }));
        }
    }
    found
}

fn one(
    inputs: &ReportInputs<'_>,
    used_by: &BTreeMap<&str, Vec<String>>,
    object: &str,
    role: CertificateRole,
    facts: CertificateFacts,
) -> Option<CertificateReport> {
    let CertificateFacts {
        names,
        subject,
        issuer,
        serial: number,
        not_before,
        not_after,
        key,
    } = facts;
    let is_served = |all: &[String]| all.contains(&serial(&number));
    let served = inputs.served.map(is_served);
    let time = |seconds| Timestamp::from_second(seconds).ok();
    // Several ConfigMaps may form one bundle.
    let files = object.split('+').filter_map(|part| inputs.files.get(part));
    let files: Vec<&str> = files.map(String::as_str).collect();
    Some(CertificateReport {
        gateway: inputs.gateway.clone(),
        object: object.to_owned(),
        file: (!files.is_empty()).then(|| files.join(", ")),
        role,
        names,
        subject,
        issuer,
        key,
        not_before: time(not_before)?,
        not_after: time(not_after)?,
        trusted_until: None,
        used_by: used_by.get(object).cloned().unwrap_or_default(),
        // Envoy reports the serial numbers of leaf certificates only.
        served: served.filter(|_| role == CertificateRole::Leaf),
        serial: number,
    })
}

fn uses(snapshot: &Snapshot) -> BTreeMap<&str, Vec<String>> {
    let mut uses: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let listeners = snapshot.ports.iter().flat_map(|port| &port.listeners);
    for Listener { name, tls, .. } in listeners {
        let Some(TlsTermination {
            keys,
            client_trust_bundle,
            ..
        }) = tls
        else {
            continue;
        };
        for used in keys.iter().chain([client_trust_bundle]) {
            uses.entry(used).or_default().push(name.clone());
        }
    }
    for Backend { name, tls, .. } in &snapshot.backends {
        let Some(BackendTls {
            trust_bundle,
            client_key,
            ..
        }) = tls.as_deref()
        else {
            continue;
        };
        for used in [trust_bundle, client_key] {
            uses.entry(used).or_default().push(name.clone());
        }
    }
    uses.remove("");
    uses
}

#[cfg(test)]
mod tests {
    use sesame_proto::schema::Port;

    use super::*;

    #[test]
    fn certificates_list_location_uses_and_envoy_state() {
        let made = |name: &str| {
            let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]);
            made.expect("a certificate")
        };
        let (leaf, other) = (made("a.test"), made("ca.test"));
        let pair = KeyPair {
            name: "Secret/ns/a".to_owned(),
            certificate_chain: (leaf.cert.pem() + &other.cert.pem()).into_bytes(),
            private_key: leaf.signing_key.serialize_pem().into_bytes(),
            ..KeyPair::default()
        };
        let bundle = "ConfigMap/ns/ca+ConfigMap/ns/more".to_owned();
        let snapshot = Snapshot {
            ports: vec![Port {
                listeners: vec![Listener {
                    name: "Gateway/ns/gw/listeners/https".to_owned(),
                    tls: Some(TlsTermination {
                        keys: vec![pair.name.clone()],
                        client_trust_bundle: bundle.clone(),
                        ..TlsTermination::default()
                    }),
                    ..Listener::default()
                }],
                ..Port::default()
            }],
            backends: vec![Backend {
                name: "Service/ns/a/443".to_owned(),
                tls: Some(Box::new(BackendTls {
                    trust_bundle: bundle.clone(),
                    ..BackendTls::default()
                })),
                ..Backend::default()
            }],
            trust_bundles: vec![TrustBundle {
                name: bundle.clone(),
                pem: other.cert.pem(),
                ..TrustBundle::default()
            }],
            ..Snapshot::default()
        };
        let number = CertificateFacts::from_pem(leaf.cert.pem().as_bytes());
        let number = number.into_iter().next().expect("one certificate").serial;
        let files = [("Secret/ns/a", "a.yaml"), ("ConfigMap/ns/more", "b.yaml")];
        let files = files.map(|(name, place)| (name.to_owned(), place.to_owned()));
        let report = |served: &[String]| {
            gateway_certificates(&ReportInputs {
                gateway: "ns/gw".to_owned(),
                snapshot: &snapshot,
                keys: std::slice::from_ref(&pair),
                retained: &[],
                served: Some(served),
                files: &BTreeMap::from(files.clone()),
            })
        };
        let found = report(std::slice::from_ref(&number));
        let what: Vec<_> = found
            .iter()
            .map(|it| {
                (
                    it.role,
                    it.names.join(","),
                    it.file.clone().unwrap_or_default(),
                    it.served,
                )
            })
            .collect();
        let row =
            |role, name: &str, file: &str, served| (role, name.to_owned(), file.to_owned(), served);
        assert_eq!(
            what,
            [
                row(CertificateRole::Leaf, "a.test", "a.yaml", Some(true)),
                row(CertificateRole::Chain, "ca.test", "a.yaml", None),
                row(CertificateRole::Authority, "ca.test", "b.yaml", None),
            ]
        );
        let https = "Gateway/ns/gw/listeners/https";
        assert_eq!(found[0].used_by, [https]);
        assert_eq!(found[2].used_by, [https, "Service/ns/a/443"]);
        assert_eq!(report(&[])[0].served, Some(false));
        let json = serde_json::to_string(&found).expect("JSON");
        assert!(!json.contains("PRIVATE"), "{json}");
    }
}
