//! Connects certificate orders to the running Gateways, and reports the orders' state.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sesame_acme::ChallengeParent;
use sesame_acme_client::{AcmeState, CertificateState};
use sesame_proto::schema::Transport;
use tokio::sync::watch;

use super::engine::SourceState;
use super::target::HostSettings;
use sesame_sources::acme::FindSockets;
use sesame_sources::problem::{Severity, SourceProblem};

/// Certificate orders by ACME.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AcmeReport {
    /// Number of orders since the agent started.
    pub orders: u64,
    /// Number of failed orders since the agent started.
    pub failures: u64,
    /// The requested certificates, by Secret.
    pub certificates: Vec<OrderedCertificate>,
}

/// A certificate that this host orders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderedCertificate {
    /// `namespace/name` of the Secret.
    pub secret: String,
    /// When the present certificate expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Why the last order failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl AcmeReport {
    /// Returns `None` if no certificate is requested.
    pub(super) fn of(state: &AcmeState) -> Option<Self> {
        let AcmeState {
            certificates,
            orders,
            failures,
        } = state;
        let certificates = certificates.iter().map(|(secret, certificate)| {
            let CertificateState {
                requesters: _,
                expires,
                problem,
            } = certificate;
            OrderedCertificate {
                secret: secret.to_string(),
                expires: *expires,
                problem: problem.clone(),
            }
        });
        let certificates: Vec<OrderedCertificate> = certificates.collect();
        (!certificates.is_empty()).then_some(Self {
            orders: *orders,
            failures: *failures,
            certificates,
        })
    }
}

/// Returns a problem of each Gateway and ListenerSet whose certificates cannot be ordered.
pub(super) fn problems(state: &AcmeState) -> Vec<SourceProblem> {
    let certificates = state.certificates.values();
    let problems = certificates.flat_map(|certificate| {
        let problem = certificate.problem.iter();
        problem.flat_map(|message| {
            let requesters = certificate.requesters.iter();
            requesters.map(|requester| SourceProblem {
                object: Some(requester.to_string()),
                ..SourceProblem::of_file(Severity::Warning, "", message.clone())
            })
        })
    });
    problems.collect()
}

/// Finds sockets by the ports that this host opens. Merged Gateways are served under another name,
/// so that the sockets of all Gateways count for them.
pub(super) fn sockets(host: &HostSettings, known: watch::Receiver<SourceState>) -> FindSockets {
    let port_map = host.port_map.clone();
    Arc::new(move |parents: &BTreeSet<ChallengeParent>| {
        let targets = known.borrow().gateways.clone();
        let mut found = BTreeSet::new();
        for parent in parents {
            let ChallengeParent {
                object: _,
                gateway,
                listener: _,
                port,
                opened,
            } = parent;
            let mapped = port_map.get(&u32::from(*port));
            let bound = mapped.copied().unwrap_or_else(|| u32::from(*opened));
            let own = targets.get(gateway);
            let targets = own
                .into_iter()
                .chain(targets.values().filter(|_| own.is_none()));
            let sockets = targets.flat_map(|target| target.sockets());
            let sockets = sockets.filter(|(transport, socket)| {
                *transport == Transport::Tcp && u32::from(socket.port()) == bound
            });
            found.extend(sockets.map(|(_, socket)| reachable(socket)));
        }
        found.into_iter().collect()
    })
}

fn reachable(socket: SocketAddr) -> SocketAddr {
    let ip = match socket.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, socket.port())
}

#[cfg(test)]
mod tests {
    use sesame_kinds::api::NamespacedName;
    use sesame_kinds::world::Kind;

    use super::*;

    #[test]
    fn order_problems_name_each_requester() {
        let named = |kind: Kind| kind.named(NamespacedName::new("shop", "a"));
        let certificate = CertificateState {
            requesters: [Kind::Gateway, Kind::ListenerSet].map(named).into(),
            expires: None,
            problem: Some("no".to_owned()),
        };
        let secret = NamespacedName::new("shop", "tls");
        let mut state = AcmeState::default();
        assert_eq!(AcmeReport::of(&state), None);
        state.certificates.insert(secret, certificate);
        let objects: Vec<_> = problems(&state)
            .into_iter()
            .filter_map(|it| it.object)
            .collect();
        assert_eq!(objects, ["Gateway/shop/a", "ListenerSet/shop/a"]);
        assert_eq!(
            AcmeReport::of(&state).unwrap().certificates[0].secret,
            "shop/tls"
        );
    }
}
