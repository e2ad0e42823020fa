//! Ports whose HTTPS listeners are also served over HTTP/3.

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::schema::port::ProxyProtocol;
use sesame_proto::schema::{Port, Protocol, TlsTermination, Transport};

use super::clients::unknown;
use super::port_clients::PortClients;
use sesame_kinds::api::{Http3Mode, Http3Settings};

/// What HTTP/3 needs to know about a listener.
#[derive(Clone, Copy)]
pub(crate) struct OnPort<'l> {
    pub(crate) port: u16,
    pub(crate) protocol: Protocol,
    pub(crate) tls: Option<&'l TlsTermination>,
}

impl<'l> OnPort<'l> {
    pub(super) fn of_snapshot(port: &'l Port) -> impl Iterator<Item = Self> {
        let number = u16::try_from(port.port).unwrap_or_default();
        port.listeners.iter().map(move |listener| Self {
            port: number,
            protocol: listener.protocol(),
            tls: listener.tls.as_ref(),
        })
    }
}

/// An error starts with the name of the field in `spec.edge`.
pub(super) fn is_enabled(settings: &Http3Settings) -> Result<bool, String> {
    let Http3Settings { mode } = settings;
    match mode {
        None | Some(Http3Mode::Enabled) => Ok(true),
        Some(Http3Mode::Disabled) => Ok(false),
        Some(Http3Mode::Other(other)) => Err(unknown("http3.mode", other, Http3Mode::WORDS)),
    }
}

/// Returns the ports that the configuration selects, each with the reason if it is served only over
/// TCP.
pub(super) fn select<'l>(
    clients: &PortClients,
    listeners: impl Iterator<Item = OnPort<'l>>,
    opened: impl Fn(u16) -> u16,
) -> BTreeMap<u16, Result<(), &'static str>> {
    let mut selected = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for listener in listeners {
        let OnPort {
            port,
            protocol,
            tls,
        } = listener;
        if protocol == Protocol::RawUdp {
            taken.insert(opened(port));
        }
        if protocol == Protocol::Https && clients.on(port).http3 {
            let serves = selected.entry(port).or_insert(Err(
                "all its HTTPS listeners ask for client certificates, or limit the TLS version, key exchange groups or ALPN",
            ));
            if tls.is_some_and(TlsTermination::allows_http3) {
                *serves = Ok(());
            }
        }
    }
    for (port, serves) in &mut selected {
        if clients.on(*port).proxy_protocol != ProxyProtocol::None {
            *serves = Err("datagrams have no PROXY protocol header");
        }
        if taken.contains(&opened(*port)) {
            *serves = Err("a UDP listener uses the port");
        }
    }
    selected
}

/// Returns a UDP port for each port that is served over HTTP/3.
pub(super) fn add(selected: &BTreeMap<u16, Result<(), &'static str>>) -> Vec<Port> {
    let served = selected.iter().filter(|(_, serves)| serves.is_ok());
    let ports = served.map(|(port, _)| Port {
        transport: Transport::Udp.into(),
        port: (*port).into(),
        http3: true,
        ..Port::default()
    });
    ports.collect()
}

#[cfg(test)]
mod tests {
    use sesame_kinds::api::{AccessLogRules, EdgeSettings, Labels, ProxyProtocolSettings};
    use sesame_proto::schema::tls_termination::{ClientMode, Version};

    use super::*;

    fn on(port: u16, protocol: Protocol, tls: Option<&TlsTermination>) -> OnPort<'_> {
        OnPort {
            port,
            protocol,
            tls,
        }
    }

    fn served(clients: &PortClients, listeners: &[OnPort<'_>]) -> Vec<(u16, bool)> {
        let selected = select(clients, listeners.iter().copied(), |port| port);
        let served = selected.into_iter();
        served
            .map(|(port, serves)| (port, serves.is_ok()))
            .collect()
    }

    fn clients(all: &EdgeSettings, ports: &[(u16, EdgeSettings)]) -> PortClients {
        let (log, labels) = (AccessLogRules::default(), Labels::default());
        let ports = ports.iter().cloned().collect();
        PortClients::of(all, &ports, &log, &labels, &mut BTreeMap::new()).0
    }

    fn with(mode: Option<Http3Mode>) -> EdgeSettings {
        EdgeSettings {
            http3: Some(Http3Settings { mode }),
            ..EdgeSettings::default()
        }
    }

    #[test]
    fn http3_needs_https_on_free_udp_port() {
        let tls = TlsTermination::default();
        let of_clients = TlsTermination {
            client_mode: ClientMode::OptionalUnverified.into(),
            ..TlsTermination::default()
        };
        let old = TlsTermination {
            max_version: Version::Tls12.into(),
            ..TlsTermination::default()
        };
        let all = [
            on(80, Protocol::Http, None),
            on(443, Protocol::Https, Some(&tls)),
            on(443, Protocol::Https, Some(&of_clients)),
            on(443, Protocol::Tls, None),
            on(444, Protocol::Https, Some(&of_clients)),
            on(445, Protocol::Https, Some(&old)),
            on(446, Protocol::Https, Some(&tls)),
            on(447, Protocol::Https, Some(&tls)),
            on(447, Protocol::RawUdp, None),
            on(448, Protocol::Https, Some(&tls)),
        ];
        let behind_balancer = EdgeSettings {
            proxy_protocol: Some(ProxyProtocolSettings::default()),
            ..EdgeSettings::default()
        };
        let expected = [
            (443, true),
            (444, false),
            (445, false),
            (446, false),
            (447, false),
            (448, true),
        ];
        let everywhere = clients(&with(None), &[(446, behind_balancer)]);
        assert_eq!(served(&everywhere, &all), expected);
        let nowhere = EdgeSettings::default();
        let listed = [(80, with(None)), (443, with(None))];
        assert_eq!(served(&clients(&nowhere, &listed), &all), [(443, true)]);
        let off = with(Some(Http3Mode::Disabled));
        assert_eq!(served(&clients(&off, &[]), &all), []);
        let others = clients(&with(None), &[(443, off)]);
        assert_eq!(served(&others, &all[..4]), []);
    }

    #[test]
    fn invalid_http3_names_field_and_value() {
        let read = is_enabled(&Http3Settings {
            mode: Some("On".into()),
        });
        let expected = "http3.mode: \"On\" is not one of Enabled, Disabled";
        assert_eq!(read, Err(expected.to_owned()));
    }
}
